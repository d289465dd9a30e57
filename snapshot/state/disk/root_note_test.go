package disk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// rootDir is a folder for root's notes, which this test keeps, root or not.
func rootDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "root")
	require.NoError(t, os.Mkdir(dir, 0o755))
	return dir
}

var elsewhere = system.Namespaces{PID: 4026532999, User: 4026531837}

// keptFrom has genv in other namespaces keep root's notes, in this order.
func keptFrom(t *testing.T, dir, root string, keepers ...system.Namespaces) {
	t.Helper()
	for _, keeper := range keepers {
		read(t, disk.New(dir, disk.Config{RootDir: root, System: &fakeSystem{boot: "boot-1", namespaces: keeper}}))
	}
}

// Who may drop what looks dead: 1102 is dead as this genv sees it.
func TestOnlyTheOwnPIDNamespaceCleansUp(t *testing.T) {
	for _, tt := range []struct {
		name     string
		in       system.Namespaces
		initial  []system.Namespaces // who kept notes before, in this order
		reader   bool                // a user, who can write no note for root
		wantGone bool
	}{
		{name: "the initial one", in: here, wantGone: true},
		{name: "root's note names it", in: here, initial: []system.Namespaces{here}, reader: true, wantGone: true},
		{name: "a container that shares both folders", in: elsewhere, initial: []system.Namespaces{here}},
		{name: "a machine that is a container", in: elsewhere, wantGone: true},
		{name: "the same, again", in: elsewhere, initial: []system.Namespaces{elsewhere}, wantGone: true},
		{name: "the host of such a machine", in: here, initial: []system.Namespaces{elsewhere}},
		{name: "another user namespace", in: system.Namespaces{PID: here.PID, User: 4026532777}, initial: []system.Namespaces{here}},
		{name: "not known", in: system.Namespaces{PID: here.PID}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, root := sharedDir(t), rootDir(t)
			machine := &fakeSystem{boot: "boot-1", processes: dead(1102)}
			began(t, disk.New(dir, disk.Config{System: machine}), machine)
			keptFrom(t, dir, root, tt.initial...)
			machine.namespaces = tt.in
			store := disk.New(dir, disk.Config{RootDir: root, System: machine})
			for range 2 { // the second look is no wiser
				files := read(t, store)
				require.Equal(t, !tt.wantGone, files.LivenessUnknown)
				if tt.wantGone {
					require.Empty(t, files.Environments)
					require.Empty(t, files.Warnings)
					continue
				}
				require.Len(t, files.Environments, 1)
				require.Equal(t, indices{0}, files.AttachedTo("1102"))
				require.Len(t, files.Warnings, 1, "said once")
				require.Contains(t, files.Warnings[0], "nothing was cleaned up")
			}
		})
	}
}

// A user without root's notes: in a container nothing is cleaned up.
func TestWithoutRootsNotesOnlyTheInitialNamespaceCleansUp(t *testing.T) {
	for _, tt := range []struct {
		in   system.Namespaces
		gone bool
	}{{here, true}, {elsewhere, false}} {
		root := rootDir(t)
		machine := &fakeSystem{boot: "boot-1", namespaces: tt.in, processes: dead(1102)}
		dir := sharedDir(t)
		began(t, disk.New(dir, disk.Config{System: machine}), machine)
		if os.Geteuid() == 0 {
			root = "/proc/none" // where even root makes no folder
		} else {
			require.NoError(t, os.RemoveAll(root)) // only root makes it
		}
		require.Equal(t, tt.gone, len(read(t, disk.New(dir, disk.Config{RootDir: root, System: machine})).Environments) == 0)
	}
}

func TestAResetClaimsTheFolderForThisNamespace(t *testing.T) {
	dir, root := sharedDir(t), rootDir(t)
	machine := &fakeSystem{boot: "boot-1", processes: dead(1102)}
	began(t, disk.New(dir, disk.Config{System: machine}), machine)
	keptFrom(t, dir, root, elsewhere)
	store := disk.New(dir, disk.Config{RootDir: root, System: machine})
	files := read(t, store)
	require.True(t, files.LivenessUnknown)
	require.NoError(t, store.Reset(t.Context(), state.Envs))
	files = read(t, store)
	require.False(t, files.LivenessUnknown)
	require.Empty(t, files.Environments)
}

func TestRootFoldersThatOthersMayWriteAreNotTrusted(t *testing.T) {
	dir, root := sharedDir(t), rootDir(t)
	require.NoError(t, os.Chmod(root, 0o777))
	machine := &fakeSystem{boot: "boot-1", processes: dead(1102)}
	began(t, disk.New(dir, disk.Config{System: machine}), machine)
	files := read(t, disk.New(dir, disk.Config{RootDir: root, System: machine}))
	require.Len(t, files.Environments, 1)
	require.Contains(t, files.Warnings[0], "only root may be able to write it")
	require.Empty(t, proctest.Names(t, root))
}

// What a genv in a container did: with a real PID namespace, in which the registered process cannot be seen.
func TestAContainerThatSharesTheFolderCleansNothingUp(t *testing.T) {
	dir, root := sharedDir(t), rootDir(t)
	store := disk.New(dir, disk.Config{RootDir: root})
	register(t, store, 1)
	shell := sleeper(t, nil)
	activate(t, store, state.Activation{EID: ownEID(), UID: snapshot.UID(os.Getuid()), PID: shell.pid})
	before := proctest.ReadText(t, filepath.Join(dir, "envs.json"))
	for _, flags := range [][]string{{"-Urpf", "--mount-proc"}, {"-pf", "--mount-proc"}} {
		cmd := exec.Command("unshare", append(flags, "/proc/self/exe", dir, root)...)
		exe := proctest.Try(os.Executable()).OK(t)
		cmd.Args[len(cmd.Args)-3] = exe
		cmd.Env = append(os.Environ(), roleVariable+"=look", "GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		if err != nil && strings.HasPrefix(string(out), "unshare:") {
			t.Logf("no namespace here: %s", out)
			continue
		}
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "1 environments, liveness unknown: true", flags)
		require.Equal(t, before, proctest.ReadText(t, filepath.Join(dir, "envs.json")), flags)
	}
	shell.end()
	require.Empty(t, read(t, store).Environments, "here it is known to be gone")
}

// A PID of a container's means another process outside: it is not registered.
func TestNoPIDOfAnotherNamespaceIsRegistered(t *testing.T) {
	for _, tt := range []struct {
		name    string
		in      system.Namespaces
		initial []system.Namespaces
		refused bool
	}{
		{name: "a container that shares both folders", in: elsewhere, initial: []system.Namespaces{here}, refused: true},
		{name: "the host", in: here, initial: []system.Namespaces{here}},
		{name: "a machine that is a container", in: elsewhere, initial: []system.Namespaces{elsewhere}},
		{name: "another user namespace", in: system.Namespaces{PID: here.PID, User: 4026532777}, initial: []system.Namespaces{here}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, root := sharedDir(t), rootDir(t)
			machine := &fakeSystem{boot: "boot-1"}
			began(t, disk.New(dir, disk.Config{System: machine}), machine)
			keptFrom(t, dir, root, tt.initial...)
			machine.namespaces = tt.in
			err := disk.New(dir, disk.Config{RootDir: root, System: machine}).Update(t.Context(), func(b *state.Files) error {
				return b.Activate(state.Activation{EID: "1", PID: 1, At: at("12:00:00")})
			})
			if tt.refused {
				require.ErrorIs(t, err, state.ErrRequest)
				require.ErrorContains(t, err, "another PID namespace")
				return
			}
			require.NoError(t, err)
		})
	}
}

// clocked is a machine whose clocks a test sets, with a store of root's on it.
type clocked struct {
	*fakeSystem
	dir, root string
	wall      time.Time
}

func newClocked(t *testing.T) *clocked {
	return &clocked{&fakeSystem{boot: "1", uptime: 5000}, sharedDir(t), filepath.Join(t.TempDir(), "root"), time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
}

func (c *clocked) store() *disk.Store {
	return disk.New(c.dir, disk.Config{System: c, RootDir: c.root, Now: func() time.Time { return c.wall }})
}

func (c *clocked) pass(d time.Duration) {
	c.wall, c.uptime = c.wall.Add(d), c.uptime+snapshot.StartTime(d/(10*time.Millisecond))
}

// since is when the age of the attachment to device 0 begins, as a look now shows it.
func (c *clocked) since(t *testing.T, s *disk.Store) string {
	t.Helper()
	f := read(t, s)
	since := f.Devices[0].Attachments[0].Since
	if since == 0 {
		return ""
	}
	return c.wall.Add(-c.uptime.Sub(since)).Format(time.TimeOnly)
}

// attach is what 1.4.3, or a user's genv, does, with a time in whatever zone.
func (c *clocked) attach(t *testing.T, written string) {
	t.Helper()
	users := disk.New(c.dir, disk.Config{System: c})
	require.NoError(t, users.Update(t.Context(), func(f *state.Files) error {
		if f.Devices == nil {
			f.MergeDevices(gpus(1))
		}
		f.Detach("7")
		if f.Environment("7") == nil {
			require.NoError(t, f.Activate(state.Activation{EID: "7", UID: snapshot.UID(os.Getuid()), PID: snapshot.PID(os.Getpid()), At: at(written)}))
		}
		_, err := f.Attach(state.AttachRequest{EID: "7", Count: 1, At: at(written)})
		return err
	}))
}

func TestRootsLooksBoundAges(t *testing.T) {
	c := newClocked(t)
	s := c.store()
	require.ErrorIs(t, proctest.Try(s.Read(t.Context())).Err, state.ErrNoDevices)
	c.pass(10 * time.Second)
	c.attach(t, "04:00:10") // with TZ=America/Los_Angeles
	c.pass(10 * time.Second)
	require.Equal(t, "12:00:00", c.since(t, s), "not before the last look without it")
	c.pass(time.Hour)
	require.Equal(t, "12:00:00", c.since(t, c.store()), "after a restart")
	c.pass(time.Second)
	c.attach(t, "21:00:21") // with TZ=Asia/Tokyo
	c.pass(time.Second)
	require.Equal(t, "13:00:22", c.since(t, s), "not after the first look with it")
}

// The time of the last look is written once a minute, and is known better by who looks.
func TestTheNoteOfLooksIsWrittenRarely(t *testing.T) {
	c := newClocked(t)
	c.attach(t, "11:59:00")
	s := c.store()
	require.Equal(t, "12:00:00", c.since(t, s))
	notes := proctest.Try(filepath.Glob(filepath.Join(c.root, "*", "seen.json"))).OK(t)
	require.Len(t, notes, 1)
	written := proctest.ReadText(t, notes[0])
	c.pass(59 * time.Second)
	require.Equal(t, "12:00:00", c.since(t, s))
	require.Equal(t, written, proctest.ReadText(t, notes[0]))
	c.pass(time.Second)
	require.Equal(t, "12:00:00", c.since(t, s))
	require.NotEqual(t, written, proctest.ReadText(t, notes[0]))
}

// Who can't write the note only reads it, and without a note nothing is known of ages.
func TestOtherUsersOnlyReadTheNote(t *testing.T) {
	proctest.NeedRoot(t)
	c := newClocked(t)
	require.NoError(t, os.Chmod(filepath.Dir(c.root), 0o755)) //nolint:gosec // users enter it
	c.attach(t, "11:59:00")
	f := proctest.Try(disk.New(c.dir, disk.Config{System: c, Now: func() time.Time { return c.wall }}).Read(t.Context())).OK(t)
	require.Zero(t, f.Devices[0].Attachments[0].Since)
	require.Equal(t, "12:00:00", c.since(t, c.store()))
	notes := proctest.Try(filepath.Glob(filepath.Join(c.root, "*", "seen.json"))).OK(t)
	require.Equal(t, os.FileMode(0o644), proctest.Try(os.Stat(notes[0])).OK(t).Mode().Perm())
}

// The ages stay when root takes the state over, and when it gives it back.
func TestAgesOutliveATakeover(t *testing.T) {
	proctest.NeedRoot(t)
	c := newClocked(t)
	c.attach(t, "11:59:00")
	s := c.store()
	require.Equal(t, "12:00:00", c.since(t, s))
	c.pass(time.Hour)
	_, _, err := s.TakeOver(t.Context(), nil)
	require.NoError(t, err)
	c.pass(time.Hour)
	require.Equal(t, "12:00:00", c.since(t, s))
	proctest.Try(s.HandOver(t.Context(), nil)).OK(t)
	c.pass(time.Hour)
	require.Equal(t, "12:00:00", c.since(t, s))
}
