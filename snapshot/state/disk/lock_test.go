package disk_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// holding is a child that holds the lock until it is let go.
func holding(t *testing.T, cmd *exec.Cmd) (letGo func()) {
	t.Helper()
	stdin, stdout := proctest.StartPiped(t, cmd)
	require.Equal(t, "held\n", proctest.Try(bufio.NewReader(stdout).ReadString('\n')).OK(t))
	return func() {
		require.NoError(t, stdin.Close())
		require.NoError(t, cmd.Wait())
	}
}

func TestABusyLockNamesItsHolder(t *testing.T) {
	proctest.NeedRoot(t)
	dir := recordedFolder(t)
	read(t, everyoneLives(dir))
	holder := asUser(child(t.Context(), "hold", dir), 4001)
	letGo := holding(t, holder)

	store := disk.New(dir, disk.Config{System: &fakeSystem{}, LockTimeout: 20 * time.Millisecond})
	_, err := store.Read(t.Context())
	require.ErrorIs(t, err, disk.ErrBusy)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var busy *disk.BusyError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, filepath.Join(dir, "genv.lock"), busy.Path)
	require.NotNil(t, busy.Holder)
	require.EqualValues(t, holder.Process.Pid, busy.Holder.PID)
	require.EqualValues(t, 4001, *busy.Holder.UID)
	require.Contains(t, err.Error(), busy.Holder.String())

	letGo()
	_ = read(t, store)
}

// Who holds the lock for ever doesn't keep root's genv from reading and judging; nothing is written, and changes wait.
func TestRootReadsWithoutALockThatIsHeld(t *testing.T) {
	_, machine, dir, root := kept(t)
	store := disk.New(dir, disk.Config{RootDir: root, System: machine, LockTimeout: 20 * time.Millisecond})
	defer holding(t, child(t.Context(), "hold", dir))()
	envs := filepath.Join(dir, "envs.json")
	read := func() *state.Files {
		t.Helper()
		files := read(t, store)
		require.Equal(t, indices{0}, files.AttachedTo("1102"))
		require.Contains(t, files.Warnings[len(files.Warnings)-1], "genv.lock is locked by process")
		return files
	}
	before := proctest.ReadText(t, envs)
	read()
	require.Equal(t, before, proctest.ReadText(t, envs))
	require.ErrorIs(t, store.Update(t.Context(), enter(7)), disk.ErrBusy)

	machine.processes = dead(1102)
	machine.running = []system.RunningProcess{job(50, alice, "1102")}
	for range 2 { // what is found isn't written, and found each time
		require.Equal(t, []snapshot.PID{50}, read().Environment("1102").PIDs)
		require.Equal(t, before, proctest.ReadText(t, envs))
	}
	require.NoError(t, os.Remove(envs))
	require.ErrorIs(t, proctest.Try(store.Read(t.Context())).Err, disk.ErrLost)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, proctest.Try(store.Read(ctx)).Err, disk.ErrBusy)
}

func TestWaitingForALockEndsWithTheContext(t *testing.T) {
	dir := recordedFolder(t)
	defer holding(t, child(t.Context(), "hold", dir))()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := everyoneLives(dir).Read(ctx)
	require.ErrorIs(t, err, disk.ErrBusy)
	require.ErrorIs(t, err, context.Canceled)
}

func TestTheLockFileIsNeverReplaced(t *testing.T) {
	dir := recordedFolder(t)
	store := everyoneLives(dir)
	_ = read(t, store)
	before := proctest.Try(os.Stat(filepath.Join(dir, "genv.lock"))).OK(t)
	require.NoError(t, store.Update(t.Context(), enter(7)))
	require.NoError(t, store.Reset(t.Context(), state.Envs))
	require.NoError(t, store.Reset(t.Context(), state.Devices, gpus(1)...))
	require.True(t, os.SameFile(before, proctest.Try(os.Stat(filepath.Join(dir, "genv.lock"))).OK(t)))
}

func TestARemovedLockFileIsReplaced(t *testing.T) {
	dir := recordedFolder(t)
	letGo := holding(t, child(t.Context(), "hold", dir))
	waited := make(chan error)
	store := everyoneLives(dir)
	go func() { waited <- store.Update(t.Context(), enter(7)) }()
	require.NoError(t, os.Remove(filepath.Join(dir, "genv.lock")))
	letGo()
	require.NoError(t, <-waited)
	require.FileExists(t, filepath.Join(dir, "genv.lock"))
}

func TestDeviceLocksAndFlock1ExcludeEachOther(t *testing.T) {
	flock, err := exec.LookPath("flock")
	require.NoError(t, err, "flock(1) of util-linux is needed: it replaces the Python SDK of 1.4.3")
	dir := recordedFolder(t)
	store := everyoneLives(dir)
	path := func(name string) string { return filepath.Join(dir, "devices", name) }
	taken := func(name string) bool {
		return exec.CommandContext(t.Context(), flock, "-n", path(name), "true").Run() != nil
	}

	release := proctest.Try(store.LockDevices(t.Context(), indices{3, 1, 3})).OK(t)
	require.True(t, taken("1.lock"))
	require.True(t, taken("3.lock"))
	require.False(t, taken("2.lock"), "a device that was not asked for")
	release()
	require.False(t, taken("1.lock"))
	require.False(t, taken("3.lock"))
	release() // once more does nothing

	cmd := exec.CommandContext(t.Context(), flock, "-F", path("1.lock"), "sh", "-c", "echo held; cat")
	letGo := holding(t, cmd)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = store.LockDevices(ctx, indices{0, 1})
	require.ErrorIs(t, err, disk.ErrBusy)
	require.ErrorContains(t, err, path("1.lock"))
	require.False(t, taken("0.lock"), "what it had got it gave back")
	letGo()
	release = proctest.Try(store.LockDevices(t.Context(), indices{0, 1})).OK(t)
	release()
}

func TestLockDevicesRefusesANegativeIndex(t *testing.T) {
	require.ErrorIs(t, proctest.Try(everyoneLives(recordedFolder(t)).LockDevices(t.Context(), indices{0, -1})).Err, state.ErrRequest)
}

func TestAChildDoesNotInheritDeviceLocks(t *testing.T) {
	dir := recordedFolder(t)
	store := everyoneLives(dir)
	release := proctest.Try(store.LockDevices(t.Context(), indices{0})).OK(t)
	cmd := exec.CommandContext(t.Context(), "cat")
	stdin := proctest.Try(cmd.StdinPipe()).OK(t)
	require.NoError(t, cmd.Start())
	release()
	proctest.Try(store.LockDevices(t.Context(), indices{0})).OK(t)()
	require.NoError(t, stdin.Close())
	require.NoError(t, cmd.Wait())
}

// Step by step, a writer is killed; the next reader finds the old files or the
// new ones, never a mixture or a broken file.
func TestAWriterThatIsKilled(t *testing.T) {
	for _, tt := range []struct {
		step               string
		activated, gotFree bool
	}{
		{"staged envs.json", false, false},
		{"staged devices.json", false, false},
		{"renamed envs.json", true, false},
		{"renamed devices.json", true, true},
		{"synced", true, true},
	} {
		t.Run(tt.step, func(t *testing.T) {
			dir := recordedFolder(t)
			err := child(t.Context(), "die-at", dir, tt.step).Run()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, syscall.SIGKILL, exit.Sys().(syscall.WaitStatus).Signal())

			store := everyoneLives(dir)
			files := read(t, store)
			require.Equal(t, tt.activated, files.Environment("20") != nil)
			require.Equal(t, tt.gotFree, len(files.AttachedTo("20")) == 1)
			require.Equal(t, indices{0, 1}, files.AttachedTo("1667"))

			require.NoError(t, store.Update(t.Context(), enter(21)))
			require.ElementsMatch(t, []string{"envs.json", "devices.json", "genv.lock"},
				proctest.Names(t, dir), "what the killed one left is gone")
		})
	}
}

func TestAFullDisk(t *testing.T) {
	proctest.NeedRoot(t)
	dir := sharedDir(t)
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=0777"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	store := everyoneLives(dir)
	register(t, store, 8)
	require.NoError(t, store.Update(t.Context(), enter(7)))
	fill(t, filepath.Join(dir, "filler"))
	envs, devices := proctest.ReadText(t, filepath.Join(dir, "envs.json")), proctest.ReadText(t, filepath.Join(dir, "devices.json"))

	err := store.TryWrite()
	require.ErrorIs(t, err, unix.ENOSPC)
	require.ErrorContains(t, err, dir)
	err = store.Update(t.Context(), enter(8))
	require.ErrorIs(t, err, unix.ENOSPC)
	require.ErrorContains(t, err, dir)
	require.Equal(t, envs, proctest.ReadText(t, filepath.Join(dir, "envs.json")))
	require.Equal(t, devices, proctest.ReadText(t, filepath.Join(dir, "devices.json")))

	more := proctest.Try(store.RegisterDevices(t.Context(), gpus(9))).OK(t, "a snapshot doesn't depend on it")
	require.Len(t, more.Devices, 9)
	require.Contains(t, more.Warnings[len(more.Warnings)-1], dir)

	dead := &fakeSystem{processes: dead(7)}
	files := proctest.Try(disk.New(dir, disk.Config{System: dead}).Read(t.Context())).OK(t, "what is there can still be read")
	require.Nil(t, files.Environment("7"))
	require.Len(t, files.Warnings, 1)

	require.NoError(t, os.Remove(filepath.Join(dir, "filler")))
	require.NoError(t, store.TryWrite())
	require.NoError(t, store.Update(t.Context(), enter(8)))
	require.NotContains(t, proctest.Names(t, dir), "envs.json.tmp")
}

// What root notes of GPUs that move is kept on a full disk: else the jobs on them would count as on GPUs of others.
func TestAFullDiskKeepsRootsNote(t *testing.T) {
	proctest.NeedRoot(t)
	dir, root := sharedDir(t), rootDir(t)
	require.NoError(t, unix.Mount("tmpfs", root, "tmpfs", 0, "size=256k,mode=0755"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(root, 0)) })
	config := disk.Config{RootDir: root, System: &fakeSystem{boot: "boot-1", uptime: 5000}}
	for i, uuids := range [][]snapshot.GPUUUID{{"GPU-a", "GPU-b"}, {"GPU-b", "GPU-a"}, {"GPU-a", "GPU-b"}} {
		devices := gpus(2)
		devices[0].UUID, devices[1].UUID = uuids[0], uuids[1]
		proctest.Try(disk.New(dir, config).RegisterDevices(t.Context(), devices)).OK(t)
		require.Equal(t, uuids[0], read(t, disk.New(dir, config)).Devices[0].UUID)
		fill(t, filepath.Join(root, "filler"+strconv.Itoa(i)))
	}
}

func fill(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	require.NoError(t, err)
	defer file.Close()
	for err == nil {
		_, err = io.WriteString(file, "full")
	}
	require.ErrorIs(t, err, unix.ENOSPC)
}

// TestHeldLocksDoNotAge: systemd-tmpfiles removes what is old below /var/tmp, and leaves out folders that are locked.
func TestHeldLocksDoNotAge(t *testing.T) {
	proctest.NeedPrograms(t, "systemd-tmpfiles")
	proctest.NeedRoot(t)
	parent := t.TempDir()
	dir := filepath.Join(parent, "genv")
	store := disk.New(dir, disk.Config{})
	rule := filepath.Join(t.TempDir(), "clean.conf")
	require.NoError(t, os.WriteFile(rule, []byte("q "+parent+" 0755 root root 1s\n"), 0o600))
	clean := func() {
		proctest.Output(t, exec.Command("systemd-tmpfiles", "--clean", rule))
	}
	release := proctest.Try(store.LockDevices(t.Context(), []snapshot.DeviceIndex{0})).OK(t)
	time.Sleep(1100 * time.Millisecond) // it goes by the time of a change, which can't be set
	clean()
	require.FileExists(t, filepath.Join(dir, "devices", "0.lock"))
	release()
	clean()
	require.NoFileExists(t, filepath.Join(dir, "devices", "0.lock"), "the rule holds")
}
