package controller_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/companions"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// guarded is a Link to hosts with guards, and a record that may be full.
type guarded struct {
	controller.Link
	records []audit.Record
	full    error
	asked   int
	said    []string
}

func (g *guarded) Snapshot(context.Context, remote.Host) (*snapshot.Snapshot, error) {
	return &snapshot.Snapshot{}, nil
}

func (g *guarded) About(remote.Host) agent.About {
	return agent.About{Via: agent.ViaStream, Can: agent.Capabilities{Guard: true}}
}

func (g *guarded) Guard(context.Context, remote.Host, agent.GuardRequest) (agent.GuardAnswer, error) {
	g.asked++
	return agent.GuardAnswer{State: agent.GuardState{Mode: guard.Enforce}}, nil
}

func (g *guarded) Append(records ...audit.Record) error {
	if g.full != nil {
		return g.full
	}
	g.records = append(g.records, records...)
	return nil
}

func (*guarded) Reserve(int64) error { return nil }

func (g *guarded) Consume(_ *controller.Cycle, events []enforce.Event) {
	for i := range events {
		g.said = append(g.said, fmt.Sprintf("%s %s: %s", events[i].Kind, events[i].Host, events[i].Text))
	}
}

// What could not be recorded is neither asked nor said, and both later.
func TestGuardsOfACycleThatDoesNotCount(t *testing.T) {
	g := &guarded{full: errors.New("no space left")}
	wanted, err := policy.Parse("p.yaml", []byte("defaults: {guard: enforce}"))
	require.NoError(t, err)
	c := &controller.Controller{Options: controller.Options{
		Survey: controller.Survey{Hosts: []remote.Host{{Name: "h1"}}, Link: g, Fanout: 1}, Policy: wanted,
		Now: time.Now, Audit: g, Sinks: []controller.Sink{g}, Companions: []controller.Companion{&companions.Guards{}},
	}}
	for range 2 {
		once(t.Context(), c)
		require.Zero(t, g.asked)
		require.Empty(t, g.said)
	}
	g.full = nil
	for number := range 2 {
		once(t.Context(), c)
		require.Equal(t, number+1, g.asked)
		require.Equal(t, []string{"guard h1: setting the kernel guard to enforce", "guard h1: the kernel guard is enforcing"}, g.said)
		require.Len(t, g.records, 2, "once")
	}
	g.full = errors.New("no space left")
	once(t.Context(), c)
	require.Equal(t, 2, g.asked)
	g.full = nil
	once(t.Context(), c)
	require.Equal(t, 3, g.asked, "or everything would open")
}
