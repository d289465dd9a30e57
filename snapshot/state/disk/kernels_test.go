package disk_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// accounts has one account with a home folder; getent knows of no other, or fails.
func accounts(t *testing.T, uid int, home string, getent error) nss.Passwd {
	t.Helper()
	passwd := filepath.Join(t.TempDir(), "passwd")
	require.NoError(t, os.WriteFile(passwd, fmt.Appendf(nil, "other:x:1:1::/:\nme:x:%d:1::%s:/bin/sh\n", uid, home), 0o600))
	return nss.Passwd{File: passwd, Getent: func(context.Context, string, ...string) ([]byte, error) { return nil, getent }}
}

// notFound is how getent(1) says that no account has a uid.
func notFound(t *testing.T) error {
	t.Helper()
	err := exec.Command("sh", "-c", "exit 2").Run()
	require.Error(t, err)
	return err
}

func TestKernelsOfProcesses(t *testing.T) {
	me := snapshot.UID(os.Getuid())
	machine := system.New(procFolder(t, map[string]string{
		"1/cmdline":    "init\x00",
		"7/cmdline":    "python\x00-m\x00ipykernel_launcher\x00-f\x00/home/a/.local/share/jupyter/runtime/kernel-0f1e-22.json\x00",
		"8/cmdline":    "python\x00--f=/run/user/1/kernel-v2-1234abc.json\x00",
		"9/cmdline":    "vi\x00kernel-dead.json.swp\x00",
		"10/cmdline":   "grep\x00kernel-dead\x00",
		"11/cmdline":   strings.Repeat("x", 1<<20) + "\x00kernel-dead.json\x00", // megabytes are not read under the lock
		"12/cmdline":   "python\x00-f\x00kernel-bob.json\x00",
		"12/status":    status, // of uid 1001
		"self/cmdline": "python\x00kernel-dead.json\x00",
	}), accounts(t, os.Getuid(), t.TempDir(), notFound(t)))
	want := map[system.Kernel]system.Liveness{
		{ID: "0f1e-22", UID: me}: system.Alive, {ID: "v2-1234abc", UID: me}: system.Alive,
		{ID: "dead", UID: me}: system.Gone, {ID: "0f1e", UID: me}: system.Gone, {ID: "", UID: me}: system.Gone,
		{ID: "bob", UID: me}:   system.Gone, // it is another user's process
		{ID: "bob", UID: 1001}: system.Alive,
	}
	var asked []system.Kernel
	for k := range want {
		asked = append(asked, k)
	}
	require.Equal(t, want, machine.Kernels(asked))
	require.Empty(t, machine.Kernels(nil))
}

// A kernel without a process, of which only the file says that it restarts.
func TestKernelsOfFiles(t *testing.T) {
	me := snapshot.UID(os.Getuid())
	file := func(home string, words ...string) {
		path := filepath.Join(append([]string{home}, words...)...)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
	}
	runtime := ".local/share/jupyter/runtime"
	for _, tt := range []struct {
		name    string
		id      string
		home    func(home string)
		environ func(home string) string // of a process of the user
		getent  error                    // for a user who isn't in /etc/passwd
		unlike  bool                     // not in /etc/passwd
		want    system.Liveness
	}{
		{name: "none", id: "k", want: system.Gone},
		{name: "in the home folder", id: "k", home: func(h string) { file(h, runtime, "kernel-k.json") }, want: system.Alive},
		{name: "another kernel's", id: "k", home: func(h string) { file(h, runtime, "kernel-kk.json") }, want: system.Gone},
		{name: "elsewhere in the home folder", id: "k", home: func(h string) { file(h, "kernel-k.json") }, want: system.Gone},
		{name: "an id that leads elsewhere", id: "../k", home: func(h string) { file(h, runtime, "kernel-../k.json") }, want: system.Gone},
		{name: "a folder", id: "k", home: func(h string) { file(h, runtime, "kernel-k.json", "x") }, want: system.Gone},
		{name: "a link", id: "k", home: func(h string) {
			file(h, runtime, "other")
			require.NoError(t, os.Symlink("other", filepath.Join(h, runtime, "kernel-k.json")))
		}, want: system.Gone},
		{name: "in JUPYTER_RUNTIME_DIR", id: "k", environ: func(h string) string { return "JUPYTER_RUNTIME_DIR=" + h + "/r" }, home: func(h string) { file(h, "r", "kernel-k.json") }, want: system.Alive},
		{name: "in XDG_DATA_HOME", id: "k", environ: func(h string) string { return "XDG_DATA_HOME=" + h + "/d" }, home: func(h string) { file(h, "d/jupyter/runtime", "kernel-k.json") }, want: system.Alive},
		{name: "in XDG_RUNTIME_DIR", id: "k", environ: func(h string) string { return "XDG_RUNTIME_DIR=" + h }, home: func(h string) { file(h, "jupyter", "kernel-k.json") }, want: system.Alive},
		{name: "in a relative folder", id: "k", environ: func(string) string { return "JUPYTER_RUNTIME_DIR=r" }, want: system.Gone},
		{name: "no account", id: "k", unlike: true, getent: notFound(t), want: system.Gone},
		{name: "an account that can't be asked for", id: "k", unlike: true, getent: errors.New("timeout"), want: system.Unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home := t.TempDir()
			if tt.home != nil {
				tt.home(home)
			}
			proc := map[string]string{"1/cmdline": "init\x00"}
			if tt.environ != nil {
				proc["7/environ"] = "A=b\x00" + tt.environ(home) + "\x00"
			}
			uid := os.Getuid()
			if tt.unlike {
				uid++
			}
			machine := system.New(procFolder(t, proc), accounts(t, uid, home, tt.getent))
			k := system.Kernel{ID: tt.id, UID: me}
			require.Equal(t, map[system.Kernel]system.Liveness{k: tt.want}, machine.Kernels([]system.Kernel{k}))
		})
	}
}

func TestKernelFilesOfOthers(t *testing.T) {
	proctest.NeedRoot(t)
	home := t.TempDir()
	runtime := filepath.Join(home, ".local/share/jupyter/runtime")
	require.NoError(t, os.MkdirAll(runtime, 0o755))
	put(t, runtime, "kernel-k.json", "{}")
	k := system.Kernel{ID: "k", UID: 4001}
	machine := system.New(procFolder(t, map[string]string{"1/cmdline": "init\x00"}), accounts(t, 4001, home, nil))
	require.Equal(t, system.Gone, machine.Kernels([]system.Kernel{k})[k], "root's file in a user's folder")
	require.NoError(t, os.Lchown(filepath.Join(runtime, "kernel-k.json"), 4001, 4001))
	require.Equal(t, system.Alive, machine.Kernels([]system.Kernel{k})[k])
}

// An environment without a process lives while its kernel's file is there. Another user,
// who can't read the folder, changes nothing.
func TestARestartingKernelKeepsItsEnvironment(t *testing.T) {
	proctest.NeedRoot(t)
	dir, runtime := sharedDir(t), t.TempDir()
	require.NoError(t, os.Chmod(runtime, 0o700))
	put(t, runtime, "kernel-0f1e.json", "{}")
	require.NoError(t, os.Chown(runtime, 4002, 4002))
	require.NoError(t, os.Chown(filepath.Join(runtime, "kernel-0f1e.json"), 4002, 4002))
	server := asUser(exec.CommandContext(t.Context(), "sleep", "1000"), 4002)
	server.Env = []string{"JUPYTER_RUNTIME_DIR=" + runtime}
	proctest.Start(t, server)

	store := disk.New(dir, disk.Config{})
	register(t, store, 1)
	activate(t, store, state.Activation{EID: ownEID(), UID: 4002, KernelID: "0f1e"})
	files := read(t, store)
	require.NotNil(t, files.Environment(ownEID()))

	require.NoError(t, os.Remove(filepath.Join(runtime, "kernel-0f1e.json")))
	output := proctest.Try(asUser(child(t.Context(), "owners", dir), 4001).Output()).OK(t)
	require.Equal(t, string(ownEID())+" [] false\n", string(output), "another user doesn't know")
	requireGone(t, store)
}

// requireGone waits for the end of the environment of a kernel. It may be any process that can't be read: the test of
// another package may have one for a while.
func requireGone(t *testing.T, store *disk.Store) {
	t.Helper()
	require.Eventually(t, func() bool { return read(t, store).Environment(ownEID()) == nil }, 2*time.Minute, 10*time.Millisecond)
}

// What users can make slow is not read under the lock.
func TestKernelsAreAskedForWithoutTheLock(t *testing.T) {
	dir, asked := t.TempDir(), 0
	machine := &fakeSystem{kernels: map[string]system.Liveness{"a": system.Alive, "b": system.Alive}}
	store := disk.New(dir, disk.Config{System: machine})
	activate := func(id string) {
		activate(t, store, state.Activation{EID: snapshot.EnvID(id), UID: 4002, KernelID: id})
	}
	activate("a")
	machine.onRead = func() {
		asked++
		requireFree(t, dir)
	}
	activate("b")
	machine.kernels["a"] = system.Gone
	files, err := store.Read(t.Context())
	require.ErrorIs(t, err, state.ErrNoDevices)
	require.Nil(t, files.Environment("a"))
	require.NotNil(t, files.Environment("b"))
	require.Positive(t, asked)
}

// Where /proc can't be read, kernels are unknown: they stay, and others can work.
func TestKernelsOfAnUnreadableProc(t *testing.T) {
	store := everyoneLives(t.TempDir())
	for _, id := range []string{"a", "b"} {
		activate(t, store, state.Activation{EID: snapshot.EnvID(id), UID: 4002, KernelID: id})
	}
	files, err := store.Read(t.Context())
	require.ErrorIs(t, err, state.ErrNoDevices)
	require.Len(t, files.Environments, 2)
}

// A directory service that doesn't answer delays others only briefly, however many users are looked for.
func TestAccountsThatHang(t *testing.T) {
	home := t.TempDir()
	runtime := filepath.Join(home, ".local/share/jupyter/runtime")
	require.NoError(t, os.MkdirAll(runtime, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(runtime, "kernel-k.json"), []byte("{}"), 0o600))
	users := accounts(t, os.Getuid(), home, nil)
	users.Getent = func(ctx context.Context, _ string, _ ...string) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	machine := system.New(procFolder(t, map[string]string{"1/cmdline": "init\x00"}), users)
	mine := system.Kernel{ID: "k", UID: snapshot.UID(os.Getuid())}
	want, asked := map[system.Kernel]system.Liveness{mine: system.Alive}, []system.Kernel{mine}
	for i := range 20 {
		k := system.Kernel{ID: "k", UID: snapshot.UID(os.Getuid() + 2 + i)}
		asked, want[k] = append(asked, k), system.Unknown
	}
	begun := time.Now()
	require.Equal(t, want, machine.Kernels(asked), "a user who hangs hides no other user's kernel")
	require.Less(t, time.Since(begun), 3*time.Second)
}

// A folder that doesn't answer delays others only briefly, and is unknown.
func TestAKernelFolderThatHangs(t *testing.T) {
	waiting := make(chan struct{})
	users := accounts(t, os.Getuid()+1, "/", nil)
	users.Getent = func(context.Context, string, ...string) ([]byte, error) {
		<-waiting
		return nil, errors.New("too late")
	}
	t.Cleanup(func() { close(waiting) })
	machine := system.New(procFolder(t, map[string]string{"1/cmdline": "init\x00"}), users)
	k := system.Kernel{ID: "k", UID: snapshot.UID(os.Getuid())}
	for range 20 { // only the first waits
		require.Equal(t, map[system.Kernel]system.Liveness{k: system.Unknown}, machine.Kernels([]system.Kernel{k}))
	}
}

// After a reboot no kernel runs, whatever files the last boot has left.
func TestKernelsEndWithAReboot(t *testing.T) {
	dir := sharedDir(t)
	machine := &fakeSystem{boot: "one", uptime: 5000, kernels: map[string]system.Liveness{"k": system.Alive}}
	store := disk.New(dir, disk.Config{System: machine, RootDir: rootDir(t)})
	activate(t, store, state.Activation{EID: "7", KernelID: "k"})
	files, err := store.Read(t.Context())
	require.ErrorIs(t, err, state.ErrNoDevices)
	require.NotNil(t, files.Environment("7"))
	machine.boot = "two"
	files, err = store.Read(t.Context())
	require.ErrorIs(t, err, state.ErrNoDevices)
	require.Nil(t, files.Environment("7"))
}

// A user who registers as many kernels as fit, and names one of them all over the command
// lines of some processes, must not delay others: the lock is held meanwhile.
func TestManyKernelsNamedManyTimes(t *testing.T) {
	const kernels, processes = 60_000, 30
	me := snapshot.UID(os.Getuid())
	proc := map[string]string{"1/cmdline": "init\x00"}
	for i := range processes {
		proc[fmt.Sprintf("%d/cmdline", 100+i)] = strings.Repeat("kernel-7.json\x00", 4500)
	}
	var asked []system.Kernel
	for i := range kernels {
		asked = append(asked, system.Kernel{ID: fmt.Sprint(i), UID: me}, system.Kernel{ID: "7", UID: snapshot.UID(1_000_000 + i)})
	}
	machine := system.New(procFolder(t, proc), accounts(t, os.Getuid(), t.TempDir(), notFound(t)))
	begun := time.Now()
	lives := machine.Kernels(asked)
	require.Less(t, time.Since(begun), 20*time.Second)
	require.Equal(t, system.Alive, lives[system.Kernel{ID: "7", UID: me}])
	require.NotEqual(t, system.Alive, lives[system.Kernel{ID: "7", UID: 1_000_000}])
}
