package companions

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

var guardNoon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func read(t *testing.T, text string) *policy.File {
	t.Helper()
	f, err := policy.Parse("p.yaml", []byte(text))
	require.NoError(t, err)
	return f
}

// aboutHost is what is known of a host: "old" and "1.4.3" have no guard.
func aboutHost(name snapshot.Hostname) agent.About {
	switch name {
	case "old":
		return agent.About{Via: agent.ViaStream}
	case "1.4.3":
		return agent.About{Via: agent.ViaCommands}
	}
	return agent.About{Via: agent.ViaStream, Capabilities: []string{agent.RequestGuard}}
}

func guarding() *Guards {
	return &Guards{Interval: 2 * time.Second, ID: "c1", By: "genv remote enforce (root on jump)"}
}

// planned is what guards are asked in a round, and what is new about them.
func planned(g *Guards, f *policy.File, names ...snapshot.Hostname) ([]*controller.Delivery, controller.Effects) {
	return g.Plan(cycleWith(f, names...), nil)
}

var rounds int

func cycleWith(f *policy.File, names ...snapshot.Hostname) *controller.Round {
	rounds++
	round := &controller.Round{Policy: f, Now: guardNoon, About: aboutHost}
	round.Plan.ExemptDevices = map[snapshot.Hostname][]snapshot.DeviceIndex{"h2": {1, 2}}
	for _, name := range names {
		round.Cluster.Hosts = append(round.Cluster.Hosts, snapshot.Host{Name: name, IsNew: true, Round: rounds, Snapshot: &snapshot.Snapshot{
			Devices: []snapshot.Device{{Index: 0, UUID: "GPU-a"}, {Index: 1, UUID: "GPU-b"}, {Index: 2}},
		}})
	}
	round.Cluster.Hosts = append(round.Cluster.Hosts, snapshot.Host{Name: "lost", Err: errors.New("no answer")})
	return round
}

// link answers what the test says, and keeps the last request.
type link struct {
	controller.Link
	request agent.GuardRequest
	answer  agent.GuardAnswer
	err     error
}

func (l *link) Guard(_ context.Context, _ remote.Host, r agent.GuardRequest) (agent.GuardAnswer, error) {
	l.request = r
	return l.answer.Bounded(), l.err
}

func guardTexts(said controller.Effects) (list []string) {
	events := said.Events
	for i := range events {
		list = append(list, fmt.Sprintf("%s %s: %s", events[i].Kind, events[i].Host, events[i].Text))
	}
	return list
}

func TestOrders(t *testing.T) {
	f := read(t, `
defaults: {guard: watch}
overrides: [{hosts: [h2], set: {guard: enforce}}, {hosts: [h3], set: {guard: off}}]
exempt: {users: [zoe], uids: [7], devices: ["h2:[1-2]"], hosts: [h4], processes: [Xorg]}
`)
	c := guarding()
	asks, events := planned(c, f, "h1", "h2", "h3", "h4", "old", "1.4.3")
	require.Equal(t, []string{
		"guard h1: setting the kernel guard to watch",
		"guard h2: setting the kernel guard to enforce",
		"guard old: the policy asks for guard: watch, but the genv on this host is an older one without a kernel guard: upgrade it. The host is polled as before",
		"guard 1.4.3: the policy asks for guard: watch, but there is no kernel guard without our genv on the host. It is polled as before",
	}, guardTexts(events))
	require.Len(t, asks, 2)
	var l link
	require.NoError(t, asks[1].Send(t.Context(), &l, remote.Host{}))
	require.Equal(t, agent.GuardRequest{ID: "controller c1", Order: guard.Order{
		Mode: guard.Enforce, LeaseMS: 60_000, ExemptUsers: []snapshot.Username{"zoe"}, ExemptUIDs: []snapshot.UID{7},
		ExemptDevices: []snapshot.DeviceIndex{1, 2}, ExemptUUIDs: []snapshot.GPUUUID{"GPU-b"}, By: "genv remote enforce (root on jump)",
	}}, l.request)
	require.NoError(t, l.request.Order.Check())

	_, events = planned(c, f, "h1", "h2", "old", "1.4.3")
	require.Empty(t, events.Events, "it is said once")
}

func TestLeases(t *testing.T) {
	for interval, want := range map[time.Duration]time.Duration{
		0: time.Minute, time.Second: time.Minute, 20 * time.Second: time.Minute, 21 * time.Second: 63 * time.Second,
		time.Hour: 3 * time.Hour, 24 * time.Hour: 24 * time.Hour,
	} {
		require.Equal(t, want, guardLease(interval), interval)
	}
}

func TestADryRunTellsHostsNothing(t *testing.T) {
	g := guarding()
	dry := func(f *policy.File) ([]*controller.Delivery, controller.Effects) {
		round := cycleWith(f, "h1")
		round.DryRun = true
		return g.Plan(round, nil)
	}
	for _, name := range []string{"watch", "enforce"} {
		asks, events := dry(read(t, "defaults: {guard: "+name+"}"))
		require.Empty(t, asks)
		require.Equal(t, []string{"guard h1: would set the kernel guard to " + name + " (dry run)"}, guardTexts(events))
	}
	asks, events := dry(policy.Default())
	require.Empty(t, asks)
	require.Empty(t, events)
}

// guardCycle plans for one host, and has it answer.
func guardCycle(t *testing.T, g *Guards, f *policy.File, l controller.Link) []string {
	t.Helper()
	asks, said := planned(g, f, "h1")
	for _, d := range asks {
		d.Err = d.Send(t.Context(), l, remote.Host{})
		said.Events = append(said.Events, g.Learn(nil, d).Events...)
	}
	return guardTexts(said)
}

func TestWhatTheGuardDoesIsSaidOnce(t *testing.T) {
	c := guarding()
	on, off := read(t, "defaults: {guard: enforce}"), policy.Default()
	l := &link{answer: agent.GuardAnswer{}}
	require.Empty(t, guardCycle(t, c, off, l))
	require.Equal(t, []string{"guard h1: setting the kernel guard to enforce"}, guardCycle(t, c, on, l), "off may be a moment's")
	l.answer.State.Mode = guard.Enforce
	require.Equal(t, []string{"guard h1: the kernel guard is enforcing"}, guardCycle(t, c, on, l))
	require.Empty(t, guardCycle(t, c, on, l))

	l.answer.State = agent.GuardState{Reason: "/etc/genv/guard.off exists"}
	require.Empty(t, guardCycle(t, c, on, l))
	require.Equal(t, []string{"guard h1: the kernel guard is off, although the policy says enforce: /etc/genv/guard.off exists"}, guardCycle(t, c, on, l))
	require.Empty(t, guardCycle(t, c, on, l))

	l.err = errors.New("no answer in time")
	require.Equal(t, []string{"guard h1: the kernel guard can't be renewed: no answer in time. Everything opens at " +
		guardNoon.Add(time.Minute).Local().Format(time.TimeOnly) + " at the latest"}, guardCycle(t, c, on, l))
	require.Empty(t, guardCycle(t, c, on, l))
	l.err, l.answer.State = nil, agent.GuardState{Mode: guard.Enforce}
	require.Equal(t, []string{"guard h1: the kernel guard is enforcing"}, guardCycle(t, c, on, l))

	// The policy turns it off: this is asked until it arrives, and then no more.
	l.err = errors.New("lost")
	require.Equal(t, "guard h1: turning the kernel guard off", guardCycle(t, c, off, l)[0])
	l.err, l.answer.State, l.request = nil, agent.GuardState{}, agent.GuardRequest{}
	require.Contains(t, guardCycle(t, c, off, l), "guard h1: the kernel guard is off")
	require.Equal(t, guard.Off, l.request.Order.Mode)
	require.Equal(t, "controller c1", l.request.ID)
	l.request = agent.GuardRequest{}
	require.Empty(t, guardCycle(t, c, off, l))
	require.Zero(t, l.request)
}

func TestAHostWithoutGuard(t *testing.T) {
	c := guarding()
	said := guardCycle(t, c, read(t, "defaults: {guard: watch}"), &link{err: agent.ErrCannotGuard})
	require.Equal(t, "guard h1: the kernel guard can't be set: "+agent.ErrCannotGuard.Error(), said[1])
}

// TestAHostThatHangsIsAskedOnce: requests to it don't pile up.
func TestAHostThatHangsIsAskedOnce(t *testing.T) {
	c := guarding()
	f := read(t, "defaults: {guard: watch}")
	asks, _ := planned(c, f, "h1")
	require.Len(t, asks, 1)
	again, _ := planned(c, f, "h1")
	require.Empty(t, again)
	c.Learn(nil, asks[0])
	again, _ = planned(c, f, "h1")
	require.Len(t, again, 1)
}

func TestTheNumberOfDenialsIsSaidWhenTheyBegin(t *testing.T) {
	c := guarding()
	f := read(t, "defaults: {guard: enforce}")
	l := &link{answer: agent.GuardAnswer{State: agent.GuardState{Mode: guard.Enforce}}}
	guardCycle(t, c, f, l)
	for _, row := range []struct {
		denied uint64
		events int
	}{{0, 0}, {3, 1}, {5, 0}, {5, 0}, {0, 0}, {1, 1}} {
		l.answer.State.Denied = row.denied
		said := guardCycle(t, c, f, l)
		require.Len(t, said, row.events)
		if row.denied == 3 {
			require.Equal(t, "guard h1: users opened GPUs that are not attached to them, 3 times in the last hour: `sudo genv guard status` on the host shows who", said[0])
		}
	}
}
