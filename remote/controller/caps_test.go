package controller_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/fairshare"
	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// attachedHost is a host with an environment of alice that has one device.
type attachedHost struct {
	plain
	reports []enforce.Report
}

var attachedAt = snapshot.DateOf(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))

func (*attachedHost) Snapshot(context.Context, remote.Host) (*snapshot.Snapshot, error) {
	at := attachedAt
	return &snapshot.Snapshot{
		Environments: []snapshot.Environment{{EID: "1", UID: 1001, Username: "alice", Creation: at}},
		Devices:      []snapshot.Device{{Attachments: []snapshot.Attachment{{EID: "1", Time: at}}}},
	}, nil
}

func (a *attachedHost) Execute(_ context.Context, _ remote.Host, r enforce.Report) (agent.Execution, error) {
	a.reports = append(a.reports, r)
	return agent.Execution{}, nil
}

// others are controllers of hosts on which alice has four devices.
type others struct {
	decided bool
	told    []*holdings.Shard
}

func (o *others) Publish(s *holdings.Shard) { o.told = append(o.told, s) }

func (o *others) Shard() (s enforce.Shard) {
	if o.decided {
		s.Decision = &holdings.Decision{Over: []holdings.Over{{
			User: "alice", Cap: holdings.Devices, Limit: 4, Elsewhere: holdings.Amount{Count: 4, Hosts: 2}, Due: true,
			Takes: []holdings.Take{{Host: "a", At: attachedAt}},
		}}}
	}
	return s
}

// What a user has is told to the other controllers, and goes when that is decided with them.
func TestCapsWithOtherControllers(t *testing.T) {
	limit := 4
	light := func() fairshare.Usage { panic("what a shard knows raises no cap") }
	policy := constant(enforce.Settings{MaxDevices: &limit})
	host, o := &attachedHost{}, &others{}
	c := &controller.Controller{Asker: controller.Asker{Hosts: []remote.Host{{Name: "a"}}, Link: host}, Now: time.Now, Caps: o}
	c.FairShare = controller.FairShare{Setting: fairshare.Setting{Boost: 2, Free: 1}, Usage: light}
	cycle := cycleOf(t.Context(), c, 1, policy)
	require.Empty(t, cycle.Plan.Findings)
	require.Len(t, o.told, 1)
	require.Equal(t, snapshot.Username("alice"), o.told[0].Users[0].Name)
	require.Empty(t, host.reports)
	o.decided = true
	cycle = cycleOf(t.Context(), c, 2, policy)
	require.Equal(t, "User alice is using 5 devices on 3 hosts which is 1 more than the maximum allowed", cycle.Plan.Findings[0].String())
	require.Len(t, host.reports, 1)
	require.Len(t, o.told, 2)
}
