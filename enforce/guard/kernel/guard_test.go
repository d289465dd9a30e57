package kernel_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/guard/kernel"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// guarded are the minors that most tests guard; uid 1001 may open 0, 64 and 253 of them.
var guarded, mine = guard.MinorsOf(0, 1, 63, 64, 200, 253), guard.MinorsOf(0, 64, 253)

// firstUID is the first one that is guarded.
const firstUID snapshot.UID = 1000

// enforce lets the guard deny.
func enforce(t testing.TB, g *kernel.Guard) {
	t.Helper()
	require.NoError(t, g.SetMinors(guarded))
	require.NoError(t, g.SetAllowed(map[snapshot.UID]guard.Minors{1001: mine}))
	set(t, g, guard.Enforce, time.Minute)
}

// newGuarded is a site with a guard that denies.
func newGuarded(t testing.TB) (*site, *kernel.Guard) {
	t.Helper()
	s := newSite(t)
	g := s.open()
	enforce(t, g)
	return s, g
}

func set(t testing.TB, g *kernel.Guard, m guard.Mode, lease time.Duration) {
	t.Helper()
	require.NoError(t, g.SetControl(guard.Control{Mode: m, Lease: lease, FirstUID: firstUID}))
}

// TestWhoIsDenied is the table of uid, minor, mode and lease. Minor 2 is not guarded, and 254 and 255 can't be.
func TestWhoIsDenied(t *testing.T) {
	s, g := newGuarded(t)
	require.NoError(t, g.SetMinors(guarded))
	makeNode(t, filepath.Join(s.dev, "other"), 196, 0)
	require.NoError(t, unix.Mknod(filepath.Join(s.dev, "block"), unix.S_IFBLK|0o666, int(unix.Mkdev(195, 0))))
	require.NoError(t, os.Chmod(filepath.Join(s.dev, "block"), 0o666))

	denied := map[int]string{ // of each user, by mode enforce within the lease
		0: "", 1: "", 999: "",
		1000: "0 1 63 64 200 253", 1001: "1 63 200", 1002: "0 1 63 64 200 253", 65534: "0 1 63 64 200 253",
		4294967294: "0 1 63 64 200 253",
	}
	users := map[int]*process{}
	for uid := range denied {
		users[uid] = s.user(uid)
	}
	for _, c := range []struct {
		mode  guard.Mode
		lease time.Duration
		first snapshot.UID
		over  bool
	}{
		{mode: guard.Enforce, lease: time.Minute},
		{mode: guard.Watch, lease: time.Minute, over: true},
		{mode: guard.Off, lease: time.Minute, over: true},
		{mode: guard.Enforce, lease: 0, over: true},
		{mode: guard.Enforce, lease: -time.Hour, over: true},
		{mode: guard.Watch, lease: 0, over: true},
		{mode: guard.Enforce, lease: time.Minute, first: 4294967295, over: true},
		{mode: guard.Enforce, lease: time.Minute, first: 1000}, // and back
	} {
		require.NoError(t, g.SetControl(guard.Control{Mode: c.mode, Lease: c.lease, FirstUID: cmp.Or(c.first, firstUID)}))
		for uid, want := range denied {
			if c.over {
				want = ""
			}
			var got []string
			for _, minor := range minors {
				if users[uid].open(s.node(minor)) == "denied" {
					got = append(got, strconv.Itoa(minor))
				}
			}
			require.Equal(t, want, strings.Join(got, " "), "uid %d: %+v", uid, c)
			require.Equal(t, "allowed", users[uid].open(filepath.Join(s.dev, "other")))
			require.Equal(t, "allowed", users[uid].open(filepath.Join(s.dev, "block")))
		}
	}
	require.NoError(t, g.SetControl(guard.Control{Mode: guard.Enforce, Lease: time.Minute, FirstUID: 1002}))
	require.Equal(t, "allowed", users[1001].open(s.node(1)))
	require.Equal(t, "denied", users[1002].open(s.node(1)))
	require.Error(t, g.SetControl(guard.Control{Mode: 3, Lease: time.Minute, FirstUID: firstUID}))
	require.Error(t, g.SetControl(guard.Control{Mode: guard.Enforce, Lease: time.Minute}), "system users would be denied")
}

func TestOtherWaysToTheDevice(t *testing.T) {
	s, _ := newGuarded(t)
	user, owner := s.user(1002), s.user(1001)
	both := func(path string) {
		t.Helper()
		require.Equal(t, "denied", user.open(path))
		require.Equal(t, "allowed", owner.open(path))
	}
	other := filepath.Join(s.dev, "mine")
	makeNode(t, other, 195, 0)
	both(other)

	bound := filepath.Join(s.dev, "bound")
	require.NoError(t, os.WriteFile(bound, nil, 0o600))
	require.NoError(t, unix.Mount(s.node(0), bound, "", unix.MS_BIND, ""))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(bound, 0)) })
	both(bound)

	require.NoError(t, os.Symlink(s.node(0), filepath.Join(s.dev, "link")))
	both(filepath.Join(s.dev, "link"))

	require.NoError(t, os.Remove(s.node(0)))
	makeNode(t, s.node(0), 195, 0)
	both(s.node(0))
	require.Equal(t, "denied", user.ask("access "+s.node(0)))
	require.Equal(t, "ok", user.ask("exists "+s.node(0)))
}

func TestNamespacesAndSetuidProgramsGainNothing(t *testing.T) {
	s, _ := newGuarded(t)
	opener := filepath.Join(place, "opener")
	setuid := filepath.Join(s.dev, "setuid")
	require.NoError(t, install(setuid, 0o755|os.ModeSetuid))
	credential := func(uid uint32) *syscall.Credential { return &syscall.Credential{Uid: uid, Gid: uid} }

	require.Equal(t, "denied", s.start(credential(1002), setuid).open(s.node(0)))
	require.Equal(t, "allowed", s.start(credential(1001), setuid).open(s.node(0)))

	unshare := proctest.Try(exec.LookPath("unshare")).OK(t)
	options := []string{"--user", "--map-root-user", "--mount", "--pid", "--fork", "--cgroup"}
	if out, err := exec.Command(unshare, append(options, "true")...).CombinedOutput(); err != nil {
		t.Skipf("skipped in part: this machine allows no user namespaces: %v: %s", err, out)
	}
	require.Equal(t, "denied", s.start(credential(1002), unshare, append(options, opener)...).open(s.node(0)))
	require.Equal(t, "allowed", s.start(credential(1001), unshare, append(options, opener)...).open(s.node(0)))
}

// nullMajor is the major number of /dev/null, a device that can be opened here.
const nullMajor = 1

func TestOpenDescriptorsStayUsable(t *testing.T) {
	s := newSite(t)
	null := filepath.Join(s.dev, "null")
	makeNode(t, null, nullMajor, 3)
	user := s.user(1002)
	require.Equal(t, "ok", user.ask("hold "+null))
	g := s.openWith(kernel.WithMajor(s.options(), nullMajor))
	require.NoError(t, g.SetMinors(guard.MinorsOf(3)))
	set(t, g, guard.Enforce, time.Minute)
	require.Equal(t, "denied", user.open(null))
	require.Equal(t, "ok", user.ask("write "+null))
	require.Equal(t, "denied", user.ask("reopen "+null))
	require.NoError(t, g.SetAllowed(map[snapshot.UID]guard.Minors{1002: guard.MinorsOf(3)}))
	require.Equal(t, "ok", user.ask("open "+null))
	require.Equal(t, "ok", user.ask("reopen "+null))
}

func TestPermissionsChangeWithoutAGap(t *testing.T) {
	s, g := newGuarded(t)
	counting := s.counting(1001, 0)
	for i := range 300 {
		allowed := map[snapshot.UID]guard.Minors{1001: mine}
		if i%2 == 0 {
			allowed[1001] = guard.AllMinors()
		}
		for uid := range snapshot.UID(20) {
			allowed[2000+20*snapshot.UID(i%3)+uid] = mine
		}
		require.NoError(t, g.SetAllowed(allowed))
		set(t, g, guard.Enforce, time.Minute)
	}
	through, denied := counting()
	require.Zero(t, denied)
	require.NotZero(t, through)
	require.Len(t, proctest.Try(g.State()).OK(t).Allowed, 21)
	require.NoError(t, g.SetAllowed(nil))
	require.Equal(t, "denied", s.user(1001).open(s.node(0)))
}

// counting lets a user open a node without end; what it returns ends that, and says how
// many opens were let through and denied.
func (s *site) counting(uid, minor int) func() (through, denied int) {
	s.Helper()
	user := s.user(uid)
	answers := make(chan string)
	go func() { answers <- user.ask("count " + s.node(minor)) }()
	return func() (through, denied int) {
		s.Helper()
		require.NoError(s, os.WriteFile(filepath.Join(s.dev, "stop"), nil, 0o600))
		proctest.Try(fmt.Sscan(<-answers, &through, &denied)).OK(s)
		return through, denied
	}
}

func TestAFullMapIsSaid(t *testing.T) {
	s, g := newGuarded(t)
	everybody := map[snapshot.UID]guard.Minors{}
	for uid := range snapshot.UID(kernel.MaxUsers) {
		everybody[3000+uid] = mine
	}
	require.NoError(t, g.SetAllowed(everybody), "uid 1001 made room")
	more := maps.Clone(everybody)
	more[1001], more[1002] = mine, mine
	err := g.SetAllowed(more)
	require.ErrorIs(t, err, guard.ErrFull)
	require.ErrorContains(t, err, "2 of 65538")
	require.Equal(t, "denied", s.user(1001).open(s.node(0)))
	require.Equal(t, "allowed", s.user(3000+kernel.MaxUsers-1).open(s.node(0)))
	require.NoError(t, g.SetAllowed(map[snapshot.UID]guard.Minors{1001: mine}))
	require.Equal(t, "allowed", s.user(1001).open(s.node(0)))
	require.Equal(t, "denied", s.user(3000).open(s.node(0)))
}

// TestAnUnpinnedGuardNeedsNoReference: a link that can't be reached is closed by the garbage collector.
func TestAnUnpinnedGuardNeedsNoReference(t *testing.T) {
	s := newSite(t)
	o := s.options()
	o.Unpinned = true
	func() {
		g := proctest.Try(kernel.Open(o)).OK(t) // ends with the cgroup
		enforce(t, g)
	}()
	for range 3 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	require.Equal(t, "denied", s.user(1002).open(s.node(0)))
}

func TestTheFoldersOfPinsAreRootsAlone(t *testing.T) {
	s := newSite(t)
	g := s.open()
	info := proctest.Try(os.Stat(s.pins)).OK(t)
	require.Equal(t, os.ModeDir|0o700, info.Mode())
	require.NoError(t, os.Chmod(s.pins, 0o755))
	require.NoError(t, g.Close())
	s.open()
	info = proctest.Try(os.Stat(s.pins)).OK(t)
	require.Equal(t, os.ModeDir|0o700, info.Mode())
	var names []string
	entries := proctest.Try(os.ReadDir(s.pins)).OK(t)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(t, []string{"allowed", "control", "events", "limits", "link", "lost", "minors"}, slices.Sorted(slices.Values(names)))
}

func TestPlacesWithoutBPFFS(t *testing.T) {
	s := newSite(t)
	for _, dir := range []string{filepath.Join(s.dev, "pins"), filepath.Join(s.dev, "none", "pins")} {
		o := s.options()
		o.Dir = dir
		require.ErrorIs(t, proctest.Try(kernel.Open(o)).Err, kernel.ErrNoBPFFS)
		require.NoError(t, kernel.Probe(o).Err, "it can be unpinned")
		require.NoError(t, os.MkdirAll(dir, 0o700))
		require.NoError(t, kernel.Remove(dir))
		require.DirExists(t, dir, "not a guard, so it is not removed")
	}
	o := s.options()
	o.Cgroup = s.dev
	_, err := kernel.Open(o)
	require.ErrorIs(t, err, kernel.ErrUnsupported)
	require.ErrorContains(t, err, "not in a cgroup2 hierarchy")
	o.Cgroup = filepath.Join(s.cgroup, "none")
	require.ErrorIs(t, proctest.Try(kernel.Open(o)).Err, os.ErrNotExist)
}

// BenchmarkOpen is the cost of an open in another process: without a guard, allowed by one
// and denied by one, and how many times as long the latter take. The three take turns, and
// the best turn of each counts, since the machine may be busy with other work.
func BenchmarkOpen(b *testing.B) {
	type place struct {
		*process
		node string
		best float64
	}
	places := make([]place, 3)
	for i := range places {
		s := newSite(b)
		node := filepath.Join(s.dev, "null")
		makeNode(b, node, nullMajor, 3)
		places[i] = place{process: s.user(1001 + i), node: node, best: math.Inf(1)}
		if i == 0 {
			continue
		}
		o := s.options()
		o.Unpinned = true
		g := s.openWith(kernel.WithMajor(o, nullMajor))
		require.NoError(b, g.SetMinors(guard.MinorsOf(3)))
		require.NoError(b, g.SetAllowed(map[snapshot.UID]guard.Minors{1002: guard.MinorsOf(3)}))
		set(b, g, guard.Enforce, time.Hour)
	}
	const opens = 300 // less than a millisecond: most turns are then without another process on the core
	for b.Loop() {
		for i := range places {
			p := &places[i]
			ns := proctest.Try(strconv.ParseFloat(p.ask("time "+p.node+" "+strconv.Itoa(opens)), 64)).OK(b)
			p.best = min(p.best, ns/opens)
		}
	}
	b.ReportMetric(places[0].best, "unguarded-ns")
	b.ReportMetric(places[1].best, "guarded-ns")
	b.ReportMetric(places[1].best/places[0].best, "guarded-ratio")
	b.ReportMetric(places[2].best/places[0].best, "denied-ratio")
}
