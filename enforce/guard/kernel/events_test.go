package kernel_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/guard/kernel"
	"github.com/seed-3119e985/genv/snapshot"
)

// listen reads events until the test ends.
func listen(t testing.TB, g *kernel.Guard) <-chan guard.Event {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	events, ended := make(chan guard.Event, 10000), make(chan error)
	go func() { ended <- g.Events(ctx, func(e guard.Event) { events <- e }) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
	return events
}

func next(t testing.TB, events <-chan guard.Event) guard.Event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(5 * time.Second):
		t.Fatal("no event")
		return guard.Event{}
	}
}

func (p *process) pid() snapshot.PID {
	p.Helper()
	pid, err := strconv.Atoi(p.ask("pid -"))
	require.NoError(p, err)
	return snapshot.PID(pid)
}

func TestEventsSayWhoOpenedWhat(t *testing.T) {
	s := newSite(t)
	g := s.open()
	enforce(t, g)
	events := listen(t, g)
	user, owner, root := s.user(1002), s.user(1001), s.user(0)
	expect := func(kind guard.EventKind, p *process, uid snapshot.UID, minor int) {
		t.Helper()
		p.open(s.node(minor))
		require.Equal(t, guard.Event{Kind: kind, UID: uid, PID: p.pid(), Minor: minor}, next(t, events))
	}
	expect(guard.Denied, user, 1002, 0)
	expect(guard.Opened, owner, 1001, 0)

	set(t, g, guard.Watch, time.Minute)
	expect(guard.WouldDeny, user, 1002, 1)
	set(t, g, guard.Off, time.Minute)
	expect(guard.Opened, user, 1002, 0)

	expect(guard.Opened, root, 0, 0) // never denied, and it may be in a container
	expect(guard.Opened, s.user(int(firstUID)-1), firstUID-1, 0)

	// What makes no event: opens of what is not guarded, and all without a lease.
	set(t, g, guard.Enforce, time.Minute)
	owner.open(s.node(2))
	root.open(s.node(2))
	user.ask("exists " + s.node(200))
	set(t, g, guard.Enforce, 0)
	user.open(s.node(63))
	user.open(s.node(2))
	set(t, g, guard.Enforce, time.Minute)
	expect(guard.Denied, user, 1002, 253)
}

func TestAFloodOfOneUserLeavesTheEventsOfOthers(t *testing.T) {
	s := newSite(t)
	g := s.open()
	enforce(t, g)
	began := time.Now()
	counting := s.counting(1002, 0)
	other := s.user(1003)
	other.open(s.node(0))
	other.open(s.node(1))
	time.Sleep(250 * time.Millisecond)
	_, denied := counting()
	took := time.Since(began)

	events := listen(t, g) // kept without a reader
	flood, seen := 0, map[int]bool{}
	for len(seen) < 2 || flood < 2 {
		switch e := next(t, events); e.UID {
		case 1002:
			flood++
		case 1003:
			seen[e.Minor] = true
		}
	}
	time.Sleep(20 * time.Millisecond)
	flood += len(events)
	require.LessOrEqual(t, flood, int(took/(100*time.Millisecond))+1)
	require.Greater(t, denied, 1000)
	t.Logf("%d events of %d denials in %s", flood, denied, took)
}

// TestALookerDoesNotHideTheNextProcess: allowed opens are limited by process.
func TestALookerDoesNotHideTheNextProcess(t *testing.T) {
	s := newSite(t)
	g := s.open()
	enforce(t, g)
	events := listen(t, g)
	first, second := s.user(1001), s.user(1001)
	began := time.Now()
	for range 1000 {
		first.open(s.node(0))
	}
	second.open(s.node(0))
	took := time.Since(began)
	seen := 0
	for pid := second.pid(); next(t, events).PID != pid; {
		seen++
	}
	require.LessOrEqual(t, seen, int(took/(100*time.Millisecond))+1)
	require.Positive(t, seen)
}

// TestACrowdIsDeniedThoughTheBufferIsFull: events are lost and counted, and no verdict changes.
func TestACrowdIsDeniedThoughTheBufferIsFull(t *testing.T) {
	s := newSite(t)
	g := s.open()
	enforce(t, g)
	const users = 20000
	require.Equal(t, strconv.Itoa(users), s.user(0).ask("crowd "+s.node(0)+" "+strconv.Itoa(users)))
	state, err := g.State()
	require.NoError(t, err)
	require.Positive(t, state.Lost)
	require.Less(t, state.Lost, uint64(users/2))
}

func TestEventsOutliveTheirReader(t *testing.T) {
	s := newSite(t)
	g := s.open()
	enforce(t, g)
	require.NoError(t, g.Close())
	s.user(1002).open(s.node(1))
	e := next(t, listen(t, s.open()))
	require.Equal(t, guard.Denied, e.Kind)
	require.Equal(t, 1, e.Minor)
}
