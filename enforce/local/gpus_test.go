package local_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// An order names GPUs. An index that is another one by now costs neither a device nor a process.
func TestRenumberedGPUsAreLeftAlone(t *testing.T) {
	type uuids = map[snapshot.DeviceIndex]snapshot.GPUUUID
	for name, row := range map[string]struct {
		named, now uuids
		noted      snapshot.GPUUUID // by root, when it was attached
		detached   order.OutcomeStatus
		ended      order.OutcomeStatus
	}{
		"the same":                         {uuids{0: "a"}, uuids{0: "a", 1: "b"}, "a", order.StatusDetached, order.StatusTerminated},
		"no note of root":                  {uuids{0: "a"}, uuids{0: "a"}, "", order.StatusDetached, order.StatusTerminated},
		"an older controller":              {nil, uuids{0: "b"}, "a", order.StatusDetached, order.StatusTerminated},
		"another GPU":                      {uuids{0: "a"}, uuids{0: "b", 1: "a"}, "a", order.StatusChanged, order.StatusChanged},
		"it is gone":                       {uuids{0: "a"}, uuids{1: "b"}, "a", order.StatusChanged, order.StatusChanged},
		"another when it was attached":     {uuids{0: "a"}, uuids{0: "a"}, "b", order.StatusChanged, order.StatusTerminated},
		"another GPU that isn't concerned": {uuids{0: "a"}, uuids{0: "a", 1: "c"}, "a", order.StatusDetached, order.StatusTerminated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := ready(t, "gentle", in("8"))
			o := detaching(environment("7", 1001, "raz"), 0)
			o.Terminate, o.GPUs = []order.Termination{{Process: c.judged("8", 0)}}, row.named
			s := newScene(local.ExecutorOptions{Grace: oneGrace}, c.judged("8", 0))
			s.machine.gpus = row.now
			d := device(0, "7")
			d.UUID = row.noted
			s.stateFiles.content = state.Files{Environments: []snapshot.Environment{environment("7", 1001, "raz")}, Devices: []snapshot.Device{d}}
			got := s.x.Execute(t.Context(), o)
			require.Equal(t, row.detached, got[0].Status, got[0].Reason)
			require.Equal(t, row.ended, got[1].Status, got[1].Reason)
		})
	}
}

// Who attaches within the warning keeps the job: what was judged is older than that.
func TestWhatIsAttachedByNowIsNotEnded(t *testing.T) {
	attached := []snapshot.Device{device(0, "8"), device(1, "7"), device(2, "8")}
	for name, row := range map[string]struct {
		unattached []snapshot.DeviceIndex
		state      []snapshot.Device
		err        error
		want       order.OutcomeStatus
	}{
		"attached":                   {[]snapshot.DeviceIndex{0, 2}, attached, nil, order.StatusChanged},
		"one of them":                {[]snapshot.DeviceIndex{0, 1, 2}, attached, nil, order.StatusTerminated},
		"another environment is":     {[]snapshot.DeviceIndex{1}, attached, nil, order.StatusTerminated},
		"none":                       {[]snapshot.DeviceIndex{0}, nil, nil, order.StatusTerminated},
		"it ends for something else": {nil, attached, nil, order.StatusTerminated},
		"that can't be read":         {[]snapshot.DeviceIndex{0}, nil, errors.New("disk"), order.StatusFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := ready(t, "gentle", in("8"))
			s := newScene(local.ExecutorOptions{Grace: oneGrace}, c.judged("8", 0, 1, 2))
			s.machine.state, s.machine.stateErr = row.state, row.err
			got := s.x.Execute(t.Context(), order.Order{Terminate: []order.Termination{{Process: c.judged("8", 0, 1, 2), Unattached: row.unattached}}})
			require.Equal(t, row.want, got[0].Status, got[0].Reason)
		})
	}
}
