package disk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
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

// closed keeps this process from writing root's notes, as it is for a user.
func closed(t *testing.T, dir string) string {
	t.Helper()
	require.NoError(t, os.RemoveAll(dir)) // only root makes it
	return dir
}

var elsewhere = system.Namespaces{PID: 4026532999, User: 4026531837}

// Who may drop what looks dead: 1102 is dead as this genv sees it.
func TestOnlyTheOwnPIDNamespaceCleansUp(t *testing.T) {
	const boot = "boot-1"
	tests := []struct {
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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, root := sharedDir(t), rootDir(t)
			machine := &fakeSystem{boot: boot, processes: map[snapshot.PID]system.ProcessStatus{1102: {Liveness: system.Gone}}}
			began(t, disk.New(dir, disk.Config{System: machine}), machine)
			for _, keeper := range tt.initial {
				_, err := disk.New(dir, disk.Config{RootDir: root, System: &fakeSystem{boot: boot, namespaces: keeper}}).Read(t.Context())
				require.NoError(t, err)
			}
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
		machine := &fakeSystem{boot: "boot-1", namespaces: tt.in, processes: map[snapshot.PID]system.ProcessStatus{1102: {Liveness: system.Gone}}}
		dir := sharedDir(t)
		began(t, disk.New(dir, disk.Config{System: machine}), machine)
		if os.Geteuid() == 0 {
			root = "/proc/none" // where even root makes no folder
		} else {
			root = closed(t, root)
		}
		files, err := disk.New(dir, disk.Config{RootDir: root, System: machine}).Read(t.Context())
		require.NoError(t, err)
		require.Equal(t, tt.gone, len(files.Environments) == 0)
	}
}

func TestAResetClaimsTheFolderForThisNamespace(t *testing.T) {
	dir, root := sharedDir(t), rootDir(t)
	machine := &fakeSystem{boot: "boot-1", processes: map[snapshot.PID]system.ProcessStatus{1102: {Liveness: system.Gone}}}
	began(t, disk.New(dir, disk.Config{System: machine}), machine)
	_, err := disk.New(dir, disk.Config{RootDir: root, System: &fakeSystem{boot: "boot-1", namespaces: elsewhere}}).Read(t.Context())
	require.NoError(t, err)
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
	machine := &fakeSystem{boot: "boot-1", processes: map[snapshot.PID]system.ProcessStatus{1102: {Liveness: system.Gone}}}
	began(t, disk.New(dir, disk.Config{System: machine}), machine)
	files, err := disk.New(dir, disk.Config{RootDir: root, System: machine}).Read(t.Context())
	require.NoError(t, err)
	require.Len(t, files.Environments, 1)
	require.Contains(t, files.Warnings[0], "only root may be able to write it")
	require.Empty(t, namesIn(t, root))
}

// What a genv in a container did: with a real PID namespace, in which the registered process cannot be seen.
func TestAContainerThatSharesTheFolderCleansNothingUp(t *testing.T) {
	dir, root := sharedDir(t), rootDir(t)
	store := disk.New(dir, disk.Config{RootDir: root})
	_, err := store.RegisterDevices(t.Context(), gpus(1))
	require.NoError(t, err)
	shell := sleeper(t, nil)
	require.NoError(t, store.Update(t.Context(), func(b *state.Files) error {
		return b.Activate(state.Activation{EID: ownEID(), UID: snapshot.UID(os.Getuid()), PID: shell.pid, At: at("12:00:00")})
	}))
	before := readFile(t, filepath.Join(dir, "envs.json"))
	for _, flags := range [][]string{{"-Urpf", "--mount-proc"}, {"-pf", "--mount-proc"}} {
		cmd := exec.Command("unshare", append(flags, "/proc/self/exe", dir, root)...)
		exe, err := os.Executable()
		require.NoError(t, err)
		cmd.Args[len(cmd.Args)-3] = exe
		cmd.Env = append(os.Environ(), roleVariable+"=look", "GORACE=atexit_sleep_ms=0")
		out, err := cmd.CombinedOutput()
		if err != nil && strings.HasPrefix(string(out), "unshare:") {
			t.Logf("no namespace here: %s", out)
			continue
		}
		require.NoError(t, err, string(out))
		require.Contains(t, string(out), "1 environments, liveness unknown: true", flags)
		require.Equal(t, before, readFile(t, filepath.Join(dir, "envs.json")), flags)
	}
	shell.end()
	files := read(t, store)
	require.Empty(t, files.Environments, "here it is known to be gone")
}

// A PID of a container's means another process outside: it is not registered.
func TestNoPIDOfAnotherNamespaceIsRegistered(t *testing.T) {
	const boot = "boot-1"
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
			machine := &fakeSystem{boot: boot}
			began(t, disk.New(dir, disk.Config{System: machine}), machine)
			for _, keeper := range tt.initial {
				_, err := disk.New(dir, disk.Config{RootDir: root, System: &fakeSystem{boot: boot, namespaces: keeper}}).Read(t.Context())
				require.NoError(t, err)
			}
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

// openToAll is a new folder with a mode that all users can reach.
func openToAll(t *testing.T, mode os.FileMode) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "genv-open-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, mode))
	return dir
}
