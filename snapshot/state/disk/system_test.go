package disk_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// procFolder is a /proc made of files, with PID 1 in it unless it hides.
func procFolder(t *testing.T, entries map[string]string) proc.FS {
	t.Helper()
	root := t.TempDir()
	for name, content := range entries {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return proc.FS{Root: root}
}

const (
	initLine  = "1 (init) S 0 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0"
	shellLine = "7 (a) b (c) S 1 7 7 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0"
	zombie    = "8 (dead) Z 1 8 8 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 4712 0 0"
	status    = "Name:\ta\nUid:\t1001\t1001\t1001\t1001\n"
)

func TestProcProcess(t *testing.T) {
	machine := system.New(procFolder(t, map[string]string{
		"1/stat": initLine, "1/cmdline": "init\x00", "sys/kernel/random/boot_id": "d0f5db2e-268c-4e81-b39e-277a5b8587e7\n",
		"7/stat": shellLine, "7/status": status, "8/stat": zombie, "9/stat": "garbage", "10/stat": shellLine,
	}), nss.Passwd{})
	require.Equal(t, "d0f5db2e-268c-4e81-b39e-277a5b8587e7", machine.BootID())
	require.Equal(t, system.ProcessStatus{Liveness: system.Alive, Start: 4711, Owner: new(snapshot.UID(1001))}, machine.Process(7))
	require.Equal(t, system.ProcessStatus{Liveness: system.Gone}, machine.Process(8), "a zombie")
	require.Equal(t, system.ProcessStatus{Liveness: system.Unknown}, machine.Process(9), "what cannot be parsed")
	require.Equal(t, system.ProcessStatus{Liveness: system.Alive, Start: 4711}, machine.Process(10), "an owner that is unknown")
	require.Equal(t, system.ProcessStatus{Liveness: system.Gone}, machine.Process(11))
}

func TestProcThatHidesTheProcessesOfOthers(t *testing.T) {
	machine := system.New(procFolder(t, map[string]string{"7/stat": shellLine, "7/cmdline": "sh\x00"}), nss.Passwd{})
	require.Equal(t, system.Unknown, machine.Process(11).Liveness)
	k := system.Kernel{ID: "k", UID: 4001}
	require.Equal(t, map[system.Kernel]system.Liveness{k: system.Unknown}, machine.Kernels([]system.Kernel{k}))
	require.Empty(t, machine.BootID())
}

func TestAKernelHiddenFromTheReaderIsKept(t *testing.T) {
	proctest.NeedRoot(t)
	dir := sharedDir(t)
	kernel := exec.CommandContext(t.Context(), "sh", "-c", "read line", "kernel-0f1e.json")
	stdin := proctest.Try(kernel.StdinPipe()).OK(t)
	require.NoError(t, kernel.Start())
	store := disk.New(dir, disk.Config{})
	register(t, store, 1)
	activate(t, store, state.Activation{EID: ownEID(), UID: snapshot.UID(os.Getuid()), KernelID: "0f1e"})
	output := proctest.Try(asUser(child(t.Context(), "owners", dir), 4001).Output()).OK(t)
	require.Equal(t, string(ownEID())+" [] false\n", string(output))

	require.NoError(t, stdin.Close())
	_ = kernel.Wait() // `read` ends with 1 at the end of its input
	requireGone(t, store)
}

func TestARealProcessOfItsOwnUser(t *testing.T) {
	store := disk.New(sharedDir(t), disk.Config{Username: system.Username})
	register(t, store, 1)
	me := snapshot.UID(os.Getuid())
	require.NoError(t, store.Update(t.Context(), func(b *state.Files) error {
		return b.Activate(state.Activation{
			EID: "me", UID: me, PID: snapshot.PID(os.Getpid()), At: at("12:00:00"),
			Username: system.Username(t.Context(), me),
		})
	}))
	require.False(t, read(t, store).Environment("me").OwnerMismatch)
}

// Where /proc hides the processes of others, signal 0 and a pidfd tell of those
// that are registered, and what may go on in another user's environment is unknown.
func TestAHiddenProcessIsNotDead(t *testing.T) {
	proctest.NeedRoot(t)
	dir := sharedDir(t)
	store := disk.New(dir, disk.Config{})
	register(t, store, 1)
	shell, theirs := sleeper(t, nil), sleeper(t, nil)
	zombie := exec.Command("/bin/true")
	require.NoError(t, zombie.Start())
	t.Cleanup(func() { _ = zombie.Wait() })
	require.NoError(t, store.Update(t.Context(), func(b *state.Files) error {
		b.Environments = []snapshot.Environment{
			{EID: "lives", UID: 0, Creation: at("12:00:00"), PIDs: []snapshot.PID{shell.pid, theirs.pid, snapshot.PID(zombie.Process.Pid)}},
			{EID: "unsure", UID: 0, Creation: at("12:00:00"), PIDs: []snapshot.PID{theirs.pid}},
			{EID: "own", UID: 4001, Creation: at("12:00:00"), PIDs: []snapshot.PID{theirs.pid}},
		}
		return nil
	}))
	theirs.end()
	reader := exec.Command("unshare", "-m", "sh", "-c",
		`mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 4001 --regid 4001 --clear-groups "$0" "$@"`, "/proc/self/exe", dir)
	exe := proctest.Try(os.Executable()).OK(t)
	binary := filepath.Join(filepath.Dir(dir), "test-binary") // where that user can run it
	require.NoError(t, proctest.WriteProgram(binary, proctest.ReadFile(t, exe)))
	reader.Args[5] = binary
	reader.Env = append(os.Environ(), roleVariable+"=owners", "GORACE=atexit_sleep_ms=0")
	out, err := reader.CombinedOutput()
	if err != nil && strings.Contains(string(out), "mount") {
		t.Skipf("no /proc can be mounted here: %s", out)
	}
	require.NoError(t, err, string(out))
	require.Equal(t, fmt.Sprintf("lives [%d] false\nunsure [%d] false\n", shell.pid, theirs.pid), string(out))
}

// ownEID is an environment's id that no process of another test on this machine
// carries: the real /proc shows those, too.
func ownEID() snapshot.EnvID { return snapshot.EnvID(fmt.Sprintf("state-test-%d", os.Getpid())) }
