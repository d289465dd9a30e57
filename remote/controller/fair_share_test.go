package controller_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/fairshare"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// shared is a host with eight devices, of which alice has four, and bob some.
type shared struct {
	plain
	bobs     int
	detached int
}

func (s *shared) Snapshot(context.Context, remote.Host) (*snapshot.Snapshot, error) {
	got := &snapshot.Snapshot{BootID: "b", Environments: []snapshot.Environment{{EID: "1", UID: 1001, Username: "alice"}, {EID: "2", UID: 1002, Username: "bob"}}, Processes: []snapshot.Process{}}
	for i := range 8 {
		d := snapshot.Device{Index: snapshot.DeviceIndex(i), Attachments: []snapshot.Attachment{}}
		switch {
		case i < 4:
			d.Attachments = []snapshot.Attachment{{EID: "1"}}
		case i < 4+s.bobs:
			d.Attachments = []snapshot.Attachment{{EID: "2"}}
		}
		got.Devices = append(got.Devices, d)
	}
	return got, nil
}

func (s *shared) Execute(_ context.Context, _ remote.Host, r enforce.Report) (agent.Execution, error) {
	s.detached += len(r.Detach)
	return agent.Execution{}, nil
}

// A boost is kept over a restart, ends with a note and a warning, and only then something is done.
func TestFairShare(t *testing.T) {
	link, now := &shared{}, time.Now()
	policy := constant{MaxDevices: new(2), Warn: enforce.Warn{For: time.Hour}}
	usage := fairshare.Usage{Known: 30 * 24 * time.Hour, Attached: map[snapshot.Username]fairshare.Seconds{"alice": {Attached: 100}, "bob": {Attached: 900}}}
	c := &controller.Controller{
		Asker: controller.Asker{Hosts: []remote.Host{{Name: "a"}}, Link: link, Fanout: 1}, Policy: policy, Now: func() time.Time { return now },
		FairShare: controller.FairShare{Setting: fairshare.Setting{Boost: 2, Free: 25}, Usage: func() fairshare.Usage { usage.Until = now; return usage }},
	}
	number := 0
	cycle := func(after time.Duration) controller.Cycle {
		number++
		now = now.Add(after)
		return c.Cycle(t.Context(), number)
	}
	first := cycle(0)
	require.Len(t, first.Plan.Findings, 1, "the fleet isn't free yet")
	require.Nil(t, first.Boosts)
	second := cycle(40 * time.Minute)
	require.Empty(t, second.Plan.Findings)
	require.Equal(t, map[snapshot.Username]int{"alice": 2}, second.Boosts)
	require.Contains(t, second.Plan.Notes[0].Text, "the fleet is free")

	kept, err := json.Marshal(&c.Memory)
	require.NoError(t, err)
	c.Memory = controller.FleetMemory{}
	require.NoError(t, json.Unmarshal(kept, &c.Memory))
	usage.Attached = nil // not read yet
	require.Empty(t, cycle(time.Minute).Plan.Findings, "a restart ends no boost")

	link.bobs = 4
	full := cycle(time.Minute)
	require.Len(t, full.Plan.Findings, 2)
	require.Equal(t, now.Add(time.Hour), full.Plan.Findings[0].Due)
	require.Empty(t, full.Plan.Notes)
	require.Zero(t, link.detached)
	cycle(59 * time.Minute)
	require.Zero(t, link.detached)
	cycle(time.Minute)
	require.Equal(t, 4, link.detached, "two of alice, and two of bob")

	c.FairShare = controller.FairShare{}
	cycle(time.Minute)
	require.Zero(t, c.Memory.FairShare, "a policy without it keeps nothing")
}
