package disk_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

func TestARootsFileThatAUserMovedIntoTheFolderStaysPrivate(t *testing.T) {
	for name, tt := range map[string]struct {
		file string
		move func(*ownedHost) error
	}{
		"a handover of state that isn't root's": {"envs.json", func(h *ownedHost) error { return move(h.store, "handover") }},
		"a takeover":                            {"genv.lock", func(h *ownedHost) error { return move(h.store, "takeover") }},
		"a takeover that fails": {"genv.starts.json", func(h *ownedHost) error {
			_, _, _ = h.store.TakeOver(t.Context(), func(*state.Files) error { return errors.New("it failed") })
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newOwnedHost(t)
			planted := filepath.Join(h.dir, tt.file)
			require.NoError(t, os.RemoveAll(planted))
			require.NoError(t, os.WriteFile(planted, []byte("a secret"), 0o600))
			require.NoError(t, tt.move(h))
			entries := proctest.Try(os.ReadDir(h.dir)).OK(t)
			for _, e := range entries {
				path := filepath.Join(h.dir, e.Name())
				if data, err := os.ReadFile(path); err == nil && string(data) == "a secret" {
					require.Equal(t, os.FileMode(0o600), mode(t, path), path)
				}
			}
		})
	}
}

// What a user has put into the folder doesn't keep it closed after a takeover that fails.
func TestAFailedTakeoverOpensTheFolderAgain(t *testing.T) {
	for name, plant := range map[string]func(path string) error{
		"a link":   func(path string) error { return os.Symlink("/etc/hostname", path) },
		"a FIFO":   func(path string) error { return syscall.Mkfifo(path, 0o666) },
		"a folder": func(path string) error { return os.Mkdir(path, 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newOwnedHost(t)
			require.NoError(t, plant(filepath.Join(h.dir, "genv.answers.json")))
			require.NoError(t, os.RemoveAll(filepath.Join(h.dir, "devices")))
			require.NoError(t, os.Symlink("/etc", filepath.Join(h.dir, "devices")))
			now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
			require.NoError(t, os.MkdirAll(filepath.Join(h.dir, "devices.corrupt-20261120-100000.000000000"), 0o755),
				"the link can't be moved aside")
			h.store = disk.New(h.dir, disk.Config{System: &fakeSystem{boot: "one"}, RootDir: h.root, Now: func() time.Time { return now }})
			_, _, err := h.store.TakeOver(t.Context(), nil)
			require.ErrorContains(t, err, "move aside")
			require.Equal(t, os.FileMode(0o777), mode(t, h.dir))
			require.NoError(t, os.Chmod(h.dir, 0o755)) // as if it had been killed
			proctest.Try(h.store.HandOver(t.Context(), nil)).OK(t)
			require.Equal(t, os.FileMode(0o777), mode(t, h.dir))
		})
	}
}

// A user who made the folder of the devices' locks can't keep others from locking devices.
func TestTheLocksOfDevicesStayForAllUsers(t *testing.T) {
	h := newOwnedHost(t)
	locks := filepath.Join(h.dir, "devices")
	require.NoError(t, os.MkdirAll(locks, 0o700))
	require.NoError(t, os.Chmod(locks, 0o700))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(locks, 4001, 4001))
	}
	h.takeOver(t)
	require.Equal(t, os.FileMode(0o755), mode(t, locks))
	var st syscall.Stat_t
	require.NoError(t, syscall.Stat(locks, &st))
	require.Equal(t, os.Geteuid(), int(st.Uid), "only root can close it")
	proctest.Try(h.store.LockDevices(t.Context(), []snapshot.DeviceIndex{0})).OK(t)()
}

// A lock stays the same file while it is held, whatever its users do to it: who made it before the
// takeover, how large they make it, and how many names they give it.
func TestALockThatIsHeldStaysTheSame(t *testing.T) {
	proctest.NeedRoot(t)
	h := newOwnedHost(t)
	for dir := h.dir; dir != os.TempDir(); dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, mode(t, dir)|0o111))
	}
	locks, elsewhere := filepath.Join(h.dir, "devices"), proctest.PublicDir(t, 0o777)
	lock := filepath.Join(locks, "0.lock")
	bob := func(script string) error {
		cmd := exec.Command("sh", "-c", script, "sh", lock, elsewhere)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4001, Gid: 4001}}
		return cmd.Run()
	}
	require.NoError(t, os.MkdirAll(locks, 0o777))
	require.NoError(t, os.Chmod(locks, 0o777))
	require.NoError(t, bob(`: >"$1"`))
	held := proctest.Try(os.Open(lock)).OK(t)
	defer held.Close()
	require.NoError(t, syscall.Flock(int(held.Fd()), syscall.LOCK_EX))
	h.takeOver(t)

	require.NoError(t, bob(`exec 9>>"$1"`), "1.4.3 opens it for writing")
	for _, attack := range []string{`rm -f "$1"`, `mv "$1" "$2"`, `mv "${1%/*}" "$2"`, `ln -s "$1" "${1%/*}/8.lock"`, `chmod 0600 "$1"`} {
		require.Error(t, bob(attack), attack)
	}
	require.NoError(t, bob(`head -c 9437184 /dev/zero >"$1"`))
	_ = bob(`ln "$1" "$2/another"`) // fs.protected_hardlinks allows what the user may write
	require.NoError(t, h.store.Publish())
	require.True(t, os.SameFile(proctest.Try(held.Stat()).OK(t), proctest.Try(os.Stat(lock)).OK(t)))
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := h.store.LockDevices(soon, []snapshot.DeviceIndex{0})
	var busy *disk.BusyError
	require.ErrorAs(t, err, &busy, "it can be waited for")
	require.Equal(t, os.Getpid(), int(busy.Holder.PID))
}

// What a user has put at the place of the devices' locks is moved aside as it is, and leads
// nowhere: the takeover goes on with a folder of root's.
func TestNoFolderInThePlaceOfTheLocks(t *testing.T) {
	for name, plant := range map[string]func(path, elsewhere string) error{
		"a file": func(path, _ string) error { return os.WriteFile(path, []byte("mine"), 0o644) },
		"a FIFO": func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
		"a link": func(path, elsewhere string) error { return os.Symlink(elsewhere, path) },
		"a link to nothing": func(path, elsewhere string) error {
			return os.Symlink(filepath.Join(elsewhere, "missing"), path)
		},
		"a hard link": func(path, elsewhere string) error { return os.Link(filepath.Join(elsewhere, "secret"), path) },
	} {
		t.Run(name, func(t *testing.T) {
			h, elsewhere := newOwnedHost(t), t.TempDir()
			require.NoError(t, os.Chmod(elsewhere, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "secret"), []byte("root's"), 0o600))
			locks := filepath.Join(h.dir, "devices")
			require.NoError(t, os.RemoveAll(locks))
			require.NoError(t, plant(locks, elsewhere))
			planted := proctest.Try(os.Lstat(locks)).OK(t)
			h.takeOver(t)
			require.Equal(t, os.ModeDir|0o755, proctest.Try(os.Lstat(locks)).OK(t).Mode())
			aside := proctest.Try(filepath.Glob(locks + ".corrupt-*")).OK(t)
			require.Len(t, aside, 1)
			moved := proctest.Try(os.Lstat(aside[0])).OK(t)
			require.True(t, os.SameFile(planted, moved), "it was not copied")
			require.Equal(t, planted.Mode(), moved.Mode())
			require.Equal(t, os.FileMode(0o700), mode(t, elsewhere))
			require.Equal(t, os.FileMode(0o600), mode(t, filepath.Join(elsewhere, "secret")))
			require.Len(t, proctest.Try(os.ReadDir(elsewhere)).OK(t), 1, "nothing was made there")
			proctest.Try(h.store.LockDevices(t.Context(), []snapshot.DeviceIndex{0})).OK(t)()
		})
	}
}

func started(ticks snapshot.StartTime) system.ProcessStatus {
	return system.ProcessStatus{Liveness: system.Alive, Start: ticks}
}

func TestAProcessIsIdentifiedByItsStartTime(t *testing.T) {
	unseen := system.ProcessStatus{Liveness: system.Unknown}
	for _, tt := range []struct {
		name  string
		then  system.ProcessStatus
		now   system.ProcessStatus
		boot  string
		other func(t *testing.T, dir, root string) // what happened in between
		lives bool
	}{
		{"the same process", started(100), started(100), "boot-1", nil, true},
		{"another process with its PID", started(100), started(200), "boot-1", nil, false},
		{"the same numbers after a reboot", started(100), started(100), "boot-2", nil, false},
		{"a start time that is no longer known", started(100), unseen, "boot-1", nil, true},
		{"a start time that was unknown then", unseen, started(200), "boot-1", nil, true},
		{"an unknown boot", started(100), started(100), "", nil, true},
		{"1.4.3 after a reboot", started(100), started(100), "boot-2", createdLater, true},
		{"a note that is lost", started(100), started(200), "boot-1", removeSeen, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, root := sharedDir(t), rootDir(t)
			machine := &fakeSystem{boot: "boot-1", uptime: 5000, processes: map[snapshot.PID]system.ProcessStatus{7: tt.then}}
			store := disk.New(dir, disk.Config{System: machine, RootDir: root})
			proctest.Try(store.RegisterDevices(t.Context(), gpus(2))).OK(t)
			require.NoError(t, store.Update(t.Context(), enter(7)))
			if tt.other != nil {
				tt.other(t, dir, root)
			}
			machine.processes[7], machine.boot = tt.now, tt.boot
			files := read(t, store)
			require.Equal(t, tt.lives, files.Environment("7") != nil)
			require.Equal(t, tt.lives, len(files.AttachedTo("7")) == 1)
		})
	}
}

// createdLater is another environment with the same process.
func createdLater(t *testing.T, dir, _ string) {
	t.Helper()
	path := filepath.Join(dir, "envs.json")
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(proctest.ReadText(t, path), "20/11/2026", "21/11/2026", 1)), 0o666))
}

func removeSeen(t *testing.T, _, root string) {
	t.Helper()
	notes := proctest.Try(filepath.Glob(filepath.Join(root, "*", "seen.json"))).OK(t)
	require.Len(t, notes, 1)
	require.NoError(t, os.Remove(notes[0]))
}

func TestAReusedPIDIsAnotherProcess(t *testing.T) {
	machine := &fakeSystem{boot: "boot-1", uptime: 5000, processes: map[snapshot.PID]system.ProcessStatus{7: started(100)}}
	store := disk.New(sharedDir(t), disk.Config{System: machine, RootDir: rootDir(t)})
	register(t, store, 2)
	require.NoError(t, store.Update(t.Context(), enter(7)))
	machine.processes[7] = started(200)
	require.NoError(t, store.Update(t.Context(), enter(7)), "the old one is gone, so this is a new environment")
	require.NotNil(t, read(t, store).Environment("7"))
}

func TestStartTimesOfProcessesOf143AreRecorded(t *testing.T) {
	dir := recordedFolder(t)
	machine := &fakeSystem{boot: "boot-1", uptime: 5000, processes: map[snapshot.PID]system.ProcessStatus{
		25936: started(1), 25937: started(2), 25938: started(3),
	}}
	store := disk.New(dir, disk.Config{System: machine, RootDir: rootDir(t)})
	_ = read(t, store)
	maps.Copy(machine.processes, map[snapshot.PID]system.ProcessStatus{25938: started(30)})
	files := read(t, store)
	require.NotNil(t, files.Environment("1667"))
	require.Nil(t, files.Environment("2020"))
}

func TestAReadThatChangesNothingWritesNothing(t *testing.T) {
	dir := recordedFolder(t)
	store := disk.New(dir, disk.Config{System: &fakeSystem{boot: "boot-1"}})
	_ = read(t, store)
	before := stats(t, dir)
	_ = read(t, store)
	require.Equal(t, before, stats(t, dir))
}

func stats(t *testing.T, dir string) string {
	t.Helper()
	var b bytes.Buffer
	for _, name := range proctest.Names(t, dir) {
		b.WriteString(name + proctest.Try(os.Stat(filepath.Join(dir, name))).OK(t).ModTime().String() + "\n")
	}
	return b.String()
}

func TestAUserOnlyReadsRootsState(t *testing.T) {
	proctest.NeedRoot(t)
	h := newOwnedHost(t)
	h.takeOver(t)
	require.NoError(t, os.Chmod(filepath.Dir(h.dir), os.ModeSticky|0o777)) // as /var/tmp
	require.NoError(t, h.store.Update(t.Context(), enter(8)))
	output := proctest.Output(t, asUser(child(t.Context(), "write-as-user", h.dir, h.root), 4001))
	require.Equal(t, "2 [] <nil> false\n<nil>\ntrue true\n<nil>\n<nil> <nil>\ntrue\n", output)
	h.requireState(t, "7", "8")
}
