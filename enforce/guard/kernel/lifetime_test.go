package kernel_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/guard/guardtest"
	"github.com/seed-3119e985/genv/enforce/guard/kernel"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestTheLeaseEndsWithNoProcessAlive(t *testing.T) {
	s, g := newGuarded(t)
	user := s.user(1002)
	const lease = 2 * time.Second
	began := time.Now()
	set(t, g, guard.Enforce, lease)
	require.NoError(t, g.Close())
	denied, asked := user.open(s.node(0)), time.Since(began)
	require.True(t, denied == "denied" || asked >= lease, "%s after %s", denied, asked)
	require.Eventually(t, func() bool { return user.open(s.node(0)) == "allowed" }, 10*time.Second, 5*time.Millisecond)
	require.GreaterOrEqual(t, time.Since(began), lease)

	// The next process renews it, and everything else is as it was.
	g = s.open()
	set(t, g, guard.Enforce, time.Minute)
	require.Equal(t, "denied", user.open(s.node(0)))
	require.Equal(t, "allowed", s.user(1001).open(s.node(0)))
}

// killed starts a holder, kills it, and returns when it is gone.
func (s *site) killed(dir, lease string) {
	s.Helper()
	cmd := exec.Command(filepath.Join(place, "opener"), s.cgroup, dir, lease)
	cmd.Env = append(os.Environ(), guardtest.RoleVariable+"=holder", "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	out := proctest.Try(cmd.StdoutPipe()).OK(s)
	require.NoError(s, cmd.Start())
	said := proctest.Try(bufio.NewReader(out).ReadString('\n')).OK(s)
	require.Equal(s, "guarding\n", said)
	require.Equal(s, "denied", s.user(1002).open(s.node(0)))
	require.NoError(s, cmd.Process.Kill())
	require.Error(s, cmd.Wait())
}

func TestKilledHolder(t *testing.T) {
	t.Run("unpinned", func(t *testing.T) {
		s := newSite(t)
		s.killed("", "1m")
		user := s.user(1002)
		require.Eventually(t, func() bool { return user.open(s.node(0)) == "allowed" }, 30*time.Second, time.Millisecond)
	})
	t.Run("pinned", func(t *testing.T) {
		s := newSite(t)
		t.Cleanup(func() { require.NoError(t, kernel.Remove(s.pins)) })
		s.killed(s.pins, "1m")
		require.Equal(t, "denied", s.user(1002).open(s.node(0)))

		seen := proctest.Try(kernel.Inspect(s.pins)).OK(t)
		require.Equal(t, guard.Enforce, seen.Mode)
		state := proctest.Try(s.open().State()).OK(t)
		require.InDelta(t, time.Minute, state.Lease, float64(20*time.Second))
		require.Equal(t, map[snapshot.UID]guard.Minors{1001: guard.MinorsOf(0)}, state.Allowed)
		require.Equal(t, "denied", s.user(1002).open(s.node(0)))
	})
}

func TestReplacementUnderLoad(t *testing.T) {
	s, _ := newGuarded(t)
	counting := s.counting(1002, 0)
	const times = 100
	for range times {
		g := proctest.Try(kernel.Open(s.options())).OK(t)
		set(t, g, guard.Enforce, time.Minute)
		require.NoError(t, g.Close())
	}
	through, denied := counting()
	require.Zero(t, through)
	require.NotZero(t, denied)
	t.Logf("0 of %d opens let through during %d replacements", denied, times)
}

func TestRemoval(t *testing.T) {
	for name, remove := range map[string]func(dir string) error{
		"by Remove": kernel.Remove,
		"by hand":   os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			s, g := newGuarded(t)
			user := s.user(1002)
			require.Equal(t, "denied", user.open(s.node(0)))
			require.NoError(t, remove(s.pins))
			require.Eventually(t, func() bool { return user.open(s.node(0)) == "allowed" }, 30*time.Second, time.Millisecond)

			require.ErrorIs(t, g.SetControl(guard.Control{Mode: guard.Enforce, Lease: time.Minute, FirstUID: firstUID}), guard.ErrRemoved)
			require.ErrorIs(t, proctest.Try(g.State()).Err, guard.ErrRemoved)
			require.ErrorIs(t, proctest.Try(kernel.Inspect(s.pins)).Err, guard.ErrRemoved)
			require.Equal(t, "allowed", user.open(s.node(0)))
			require.NoError(t, kernel.Remove(s.pins))

			// Another guard in its place is not this one.
			enforce(t, s.open())
			require.ErrorIs(t, g.SetControl(guard.Control{Mode: guard.Off, FirstUID: firstUID}), guard.ErrRemoved)
			require.Equal(t, "denied", user.open(s.node(0)))
		})
	}
}

// A process that has no file descriptor left, for example, can't see its guard. That is not
// the removal by an administrator, which turns the guard off for good.
func TestAGuardThatCannotBeSeenIsNotRemoved(t *testing.T) {
	s, g := newGuarded(t)
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}))
	set := g.SetControl(guard.Control{Mode: guard.Enforce, Lease: time.Minute, FirstUID: firstUID})
	_, state := g.State()
	_, inspect := kernel.Inspect(s.pins)
	_, open := kernel.Open(s.options())
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	for _, err := range []error{set, state, inspect, open} {
		require.ErrorIs(t, err, unix.EMFILE)
		require.NotErrorIs(t, err, guard.ErrRemoved)
	}
	require.NoError(t, g.SetControl(guard.Control{Mode: guard.Enforce, Lease: time.Minute, FirstUID: firstUID}))
	require.Equal(t, "denied", s.user(1002).open(s.node(0)))
}

func TestARemovedCgroupEndsTheGuard(t *testing.T) {
	s := newSite(t)
	o := s.options()
	o.Cgroup = filepath.Join(s.cgroup, "below")
	require.NoError(t, os.Mkdir(o.Cgroup, 0o755))
	g := s.openWith(o)
	enforce(t, g)
	require.NoError(t, os.Remove(o.Cgroup))
	require.Eventually(t, func() bool {
		_, err := g.State()
		return err != nil
	}, 30*time.Second, time.Millisecond)
	require.ErrorIs(t, proctest.Try(kernel.Inspect(s.pins)).Err, guard.ErrRemoved)
	enforce(t, s.open()) // at another cgroup: a new guard
	require.Equal(t, "denied", s.user(1002).open(s.node(0)))
}

func TestPinsThatCannotBeTakenOver(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"a map is gone": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "limits")))
		},
		"the link is gone": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "link")))
		},
		"a map of another version": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "allowed")))
			m := proctest.Try(ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: 10})).OK(t)
			defer m.Close()
			require.NoError(t, m.Pin(filepath.Join(dir, "allowed")))
		},
		"something else in place of the link": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "link")))
			require.NoError(t, os.Rename(filepath.Join(dir, "lost"), filepath.Join(dir, "link")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			old := s.open()
			enforce(t, old)
			spoil(t, s.pins)
			g := s.open()
			user := s.user(1002)
			require.Eventually(t, func() bool { return user.open(s.node(0)) == "allowed" }, 30*time.Second, time.Millisecond,
				"a new guard allows everything until it is told otherwise")
			enforce(t, g)
			require.Equal(t, "denied", user.open(s.node(0)))
			require.ErrorIs(t, old.SetControl(guard.Control{FirstUID: firstUID}), guard.ErrRemoved)
		})
	}
}

// listen reads events until the test ends.
func listen(t testing.TB, g *kernel.Guard) <-chan guard.DeviceOpen {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	events, ended := make(chan guard.DeviceOpen, 10000), make(chan error)
	go func() { ended <- g.Events(ctx, func(e guard.DeviceOpen) { events <- e }) }()
	t.Cleanup(func() {
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
	return events
}

func next(t testing.TB, events <-chan guard.DeviceOpen) guard.DeviceOpen {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-time.After(30 * time.Second):
		t.Fatal("no event")
		return guard.DeviceOpen{}
	}
}

func (p *process) pid() snapshot.PID {
	p.Helper()
	pid := proctest.Try(strconv.Atoi(p.ask("pid -"))).OK(p)
	return snapshot.PID(pid)
}

func TestEventsSayWhoOpenedWhat(t *testing.T) {
	s, g := newGuarded(t)
	events := listen(t, g)
	user, owner, root := s.user(1002), s.user(1001), s.user(0)
	expect := func(kind guard.OpenKind, p *process, uid snapshot.UID, minor int) {
		t.Helper()
		p.open(s.node(minor))
		require.Equal(t, guard.DeviceOpen{Kind: kind, UID: uid, PID: p.pid(), Minor: minor}, next(t, events))
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
	s, g := newGuarded(t)
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
	s, g := newGuarded(t)
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
	s, g := newGuarded(t)
	const users = 20000
	require.Equal(t, strconv.Itoa(users), s.user(0).ask("crowd "+s.node(0)+" "+strconv.Itoa(users)))
	state := proctest.Try(g.State()).OK(t)
	require.Positive(t, state.Lost)
	require.Less(t, state.Lost, uint64(users/2))
}

func TestEventsOutliveTheirReader(t *testing.T) {
	s, g := newGuarded(t)
	require.NoError(t, g.Close())
	s.user(1002).open(s.node(1))
	e := next(t, listen(t, s.open()))
	require.Equal(t, guard.Denied, e.Kind)
	require.Equal(t, 1, e.Minor)
}
