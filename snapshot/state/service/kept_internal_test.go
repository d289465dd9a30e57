package service

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
)

// TestNothingIsKeptBackForEver: what the first one in the queue can't have is kept from others for a time, too.
func TestNothingIsKeptBackForEver(t *testing.T) {
	device := func(index snapshot.DeviceIndex, memory string, attached ...snapshot.Attachment) snapshot.Device {
		return snapshot.Device{Index: index, TotalMemory: snapshot.MustMemory(memory), UsedMemory: snapshot.MustMemory("1mi"), Attachments: attached}
	}
	part := snapshot.Attachment{EID: "other", GPUMemory: snapshot.MustMemory("10g")}
	whole := snapshot.Attachment{EID: "other"}
	for name, tt := range map[string]struct {
		devices []snapshot.Device
		ask     change.Attach
		kept    []snapshot.DeviceIndex
	}{
		"a part of one is free":     {[]snapshot.Device{device(0, "80g", part)}, change.Attach{}, gpusOf(1)},
		"a smaller one is free":     {[]snapshot.Device{device(0, "80g", whole), device(1, "10g")}, change.Attach{AttachRequest: state.AttachRequest{Memory: snapshot.MustMemory("20g")}}, gpusOf(2)},
		"MIG instances are free":    {[]snapshot.Device{device(0, "80g", part), {Index: 1, MIGMode: true}}, change.Attach{}, gpusOf(1)},
		"it never gets two":         {[]snapshot.Device{device(0, "80g"), {Index: 1, MIGMode: true}}, change.Attach{AttachRequest: state.AttachRequest{Count: 2}}, nil},
		"nor two that are so large": {[]snapshot.Device{device(0, "80g"), device(1, "10g")}, change.Attach{AttachRequest: state.AttachRequest{Count: 2, Memory: snapshot.MustMemory("20g")}}, nil},
		"its environment has ended": {[]snapshot.Device{device(0, "80g")}, change.Attach{AttachRequest: state.AttachRequest{EID: "ended"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.ask.EID == "" {
				tt.ask.EID = "own"
			}
			tt.ask.Count = max(tt.ask.Count, 1)
			w := waitOf(t, "w", 1, tt.ask.Count, sinceBoot())
			w.change = &change.Change{Attach: &tt.ask}
			s := &Server{Now: time.Now, Backend: &shown{look: snapshot.Snapshot{
				Devices: tt.devices, Environments: []snapshot.Environment{{EID: "own", UID: 1}, {EID: "other", UID: 2}},
			}}}
			s.loadWaits()
			s.waits.list = []*wait{w}
			s.round(t.Context())
			require.Equal(t, tt.kept, s.waits.keptFrom(3))
			require.Equal(t, tt.kept != nil, s.waits.keptBack.since != 0, "the time begins")
		})
	}
}
