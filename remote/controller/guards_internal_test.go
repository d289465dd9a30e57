package controller

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
	"github.com/seed-3119e985/genv/snapshot"
)

var guardNoon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func read(t *testing.T, text string) *policy.File {
	t.Helper()
	f, err := policy.Parse("p.yaml", []byte(text))
	require.NoError(t, err)
	return f
}

// guarding is a controller of hosts that answered, and one that didn't; "old" and "1.4.3" have no guard.
func guarding(dryRun bool) *Controller {
	about := func(h remote.Host) agent.About {
		switch h.Name {
		case "old":
			return agent.About{Via: agent.ViaStream}
		case "1.4.3":
			return agent.About{Via: agent.ViaCommands}
		}
		return agent.About{Via: agent.ViaStream, Can: agent.Capabilities{Guard: true}}
	}
	return &Controller{interval: 2 * time.Second, Options: Options{
		Asker: Asker{Link: withAbout{about: about}}, DryRun: dryRun, ID: "c1", By: "genv remote enforce (root on jump)",
	}}
}

// withAbout is a Link of which only About is known.
type withAbout struct {
	Link
	about func(remote.Host) agent.About
}

func (l withAbout) About(h remote.Host) agent.About { return l.about(h) }

// planned is what guards are asked in a cycle, and what is new about them.
func planned(c *Controller, f *policy.File, names ...snapshot.Hostname) (asks []errand, events []enforce.Event) {
	return c.planGuards(cycleWith(names...), f, &c.Memory, guardNoon)
}

func cycleWith(names ...snapshot.Hostname) *Cycle {
	cycle := &Cycle{answered: map[snapshot.Hostname]remote.Host{}}
	for _, name := range names {
		cycle.Cluster.Hosts = append(cycle.Cluster.Hosts, snapshot.Host{Name: name, Snapshot: &snapshot.Snapshot{
			Devices: []snapshot.Device{{Index: 0, UUID: "GPU-a"}, {Index: 1, UUID: "GPU-b"}, {Index: 2}},
		}})
		cycle.answered[name] = remote.Host{Name: string(name)}
	}
	cycle.Cluster.Hosts = append(cycle.Cluster.Hosts, snapshot.Host{Name: "lost", Err: errors.New("no answer")})
	return cycle
}

// link answers what the test says, and keeps the last request.
type link struct {
	Link
	request agent.GuardRequest
	answer  agent.GuardAnswer
	err     error
}

func (l *link) Guard(_ context.Context, _ remote.Host, r agent.GuardRequest) (agent.GuardAnswer, error) {
	l.request = r
	return l.answer.Bounded(), l.err
}

func guardTexts(events []enforce.Event) (list []string) {
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
	c := guarding(false)
	asks, events := planned(c, f, "h1", "h2", "h3", "h4", "old", "1.4.3")
	require.Equal(t, []string{
		"guard h1: setting the kernel guard to watch",
		"guard h2: setting the kernel guard to enforce",
		"guard old: the policy asks for guard: watch, but the genv on this host is an older one without a kernel guard: upgrade it. The host is polled as before",
		"guard 1.4.3: the policy asks for guard: watch, but there is no kernel guard without our genv on the host. It is polled as before",
	}, guardTexts(events))
	require.Len(t, asks, 2)
	var l link
	require.NoError(t, asks[1].send(t.Context(), &l, remote.Host{}))
	require.Equal(t, agent.GuardRequest{ID: "controller c1", Order: guard.Order{
		Mode: guard.Enforce, Lease: time.Minute, ExemptUsers: []snapshot.Username{"zoe"}, ExemptUIDs: []snapshot.UID{7},
		ExemptDevices: []snapshot.DeviceIndex{1, 2}, ExemptUUIDs: []snapshot.GPUUUID{"GPU-b"}, By: "genv remote enforce (root on jump)",
	}}, l.request)
	require.NoError(t, l.request.Order.Check())

	_, events = planned(c, f, "h1", "h2", "old", "1.4.3")
	require.Empty(t, events, "it is said once")
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
	c := guarding(true)
	for _, name := range []string{"watch", "enforce"} {
		asks, events := planned(c, read(t, "defaults: {guard: "+name+"}"), "h1")
		require.Empty(t, asks)
		require.Equal(t, []string{"guard h1: would set the kernel guard to " + name + " (dry run)"}, guardTexts(events))
	}
	asks, events := planned(c, policy.Default(), "h1")
	require.Empty(t, asks)
	require.Empty(t, events)
}

// What a standby would do is what the leader does.
func TestAStandbySaysNothingOfOrders(t *testing.T) {
	c := guarding(true)
	c.Standby = true
	asks, events := planned(c, read(t, "defaults: {guard: enforce}"), "h1", "1.4.3")
	require.Empty(t, asks)
	require.Equal(t, []string{
		"guard 1.4.3: the policy asks for guard: enforce, but there is no kernel guard without our genv on the host. It is polled as before",
	}, guardTexts(events))
}

// TestPendingEvents: while no cycle can be recorded, the latest event of each host waits, however many hosts there are.
func TestPendingEvents(t *testing.T) {
	var names []snapshot.Hostname
	for i := range 300 {
		names = append(names, snapshot.Hostname(fmt.Sprint("h", i)))
	}
	c := guarding(false)
	for _, mode := range []string{"watch", "enforce", "watch", "enforce"} {
		_, events := c.planGuards(cycleWith(names...), read(t, "defaults: {guard: "+mode+"}"), new(FleetMemory), guardNoon)
		require.Len(t, events, 300)
	}
}

// guarded is a Link to hosts with guards, and a record that may be full.
type guarded struct {
	link
	kept
	full  error
	asked int
	said  []string
}

func (g *guarded) Snapshot(context.Context, remote.Host) (*snapshot.Snapshot, error) {
	return &snapshot.Snapshot{}, nil
}

func (g *guarded) About(remote.Host) agent.About {
	return agent.About{Via: agent.ViaStream, Can: agent.Capabilities{Guard: true}}
}

func (g *guarded) Guard(ctx context.Context, h remote.Host, r agent.GuardRequest) (agent.GuardAnswer, error) {
	g.asked++
	return g.link.Guard(ctx, h, r)
}

func (g *guarded) Append(records ...audit.Record) error {
	if g.full != nil {
		return g.full
	}
	return g.kept.Append(records...)
}

func (g *guarded) Consume(_ *Cycle, events []enforce.Event) {
	g.said = append(g.said, guardTexts(events)...)
}

// What could not be recorded is neither asked nor said, and both later.
func TestGuardsOfACycleThatDoesNotCount(t *testing.T) {
	g := &guarded{full: errors.New("no space left")}
	c := &Controller{Options: Options{
		Asker: Asker{Hosts: []remote.Host{{Name: "h1"}}, Link: g, Fanout: 1}, Policy: read(t, "defaults: {guard: enforce}"),
		Now: func() time.Time { return guardNoon }, Audit: g, Sinks: []Sink{g},
	}}
	g.answer = agent.GuardAnswer{State: agent.GuardState{Mode: guard.Enforce}}
	for number := range 2 {
		c.Cycle(t.Context(), number+1)
		require.Zero(t, g.asked)
		require.Empty(t, g.said)
	}
	g.full = nil
	for number := range 2 {
		c.Cycle(t.Context(), number+3)
		require.Equal(t, number+1, g.asked)
		require.Equal(t, []string{"guard h1: setting the kernel guard to enforce", "guard h1: the kernel guard is enforcing"}, g.said)
		require.Len(t, g.kept, 2, "once")
	}
	g.full = errors.New("no space left")
	c.Cycle(t.Context(), 5)
	require.Equal(t, 2, g.asked)
	g.full = nil
	c.Cycle(t.Context(), 6)
	require.Equal(t, 3, g.asked, "or everything would open")
}

// guardCycle plans for one host, and has it answer.
func guardCycle(t *testing.T, c *Controller, f *policy.File, l Link) []string {
	t.Helper()
	asks, events := planned(c, f, "h1")
	for _, a := range asks {
		events = append(events, a.learn(c, nil, a.send(t.Context(), l, remote.Host{})).events...)
	}
	return guardTexts(events)
}

func TestWhatTheGuardDoesIsSaidOnce(t *testing.T) {
	c := guarding(false)
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
	c := guarding(false)
	said := guardCycle(t, c, read(t, "defaults: {guard: watch}"), &link{err: agent.ErrCannotGuard})
	require.Equal(t, "guard h1: the kernel guard can't be set: "+agent.ErrCannotGuard.Error(), said[1])
}

// TestAHostThatHangsIsAskedOnce: requests to it don't pile up.
func TestAHostThatHangsIsAskedOnce(t *testing.T) {
	c := guarding(false)
	f := read(t, "defaults: {guard: watch}")
	asks, _ := planned(c, f, "h1")
	require.Len(t, asks, 1)
	again, _ := planned(c, f, "h1")
	require.Empty(t, again)
	asks[0].learn(c, nil, nil)
	again, _ = planned(c, f, "h1")
	require.Len(t, again, 1)
}

func TestTheNumberOfDenialsIsSaidWhenTheyBegin(t *testing.T) {
	c := guarding(false)
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

func TestRecords(t *testing.T) {
	r := guardRecord(&enforce.Event{Kind: enforce.EventGuard, Host: "h1", Text: "x"})
	require.Equal(t, audit.Record{Kind: audit.KindGuard, Host: "h1", Text: "x"}, r)
}
