package disk_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// kept is a state folder with 1102 of alice on device 0, of which root has a copy.
func kept(t *testing.T) (store *disk.Store, machine *fakeSystem, dir, root string) {
	t.Helper()
	dir, root = sharedDir(t), rootDir(t)
	machine = &fakeSystem{boot: "boot-1", uptime: 5000}
	store = disk.New(dir, disk.Config{RootDir: root, System: machine})
	began(t, store, machine)
	return store, machine, dir, root
}

func losses() map[string]func(t *testing.T, path string) {
	write := func(content string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, os.WriteFile(path, []byte(content), 0o666))
		}
	}
	remove := func(t *testing.T, path string) {
		t.Helper()
		require.NoError(t, os.Remove(path))
	}
	return map[string]func(t *testing.T, path string){
		"removed": remove,
		"emptied": write(""),
		"garbage": write("\x00\xff garbage"),
		"cut":     write(`{"envs": [`),
		"huge": func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, os.Truncate(path, disk.MaxFileSize+1))
		},
		"a link": func(t *testing.T, path string) {
			remove(t, path)
			require.NoError(t, os.Symlink("/etc/passwd", path))
		},
		"a second name": func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, os.Link(path, path+".2"))
		},
		"a FIFO": func(t *testing.T, path string) {
			remove(t, path)
			require.NoError(t, unix.Mkfifo(path, 0o666))
		},
		"leased": lease,
		"a folder": func(t *testing.T, path string) {
			remove(t, path)
			require.NoError(t, os.MkdirAll(filepath.Join(path, "full"), 0o777))
		},
		"the whole folder": func(t *testing.T, path string) {
			t.Helper()
			require.NoError(t, os.RemoveAll(filepath.Dir(path)))
		},
	}
}

// lease makes others who open a file wait, or fail, as its owner can.
func lease(t *testing.T, path string) {
	t.Helper()
	file := proctest.Try(os.OpenFile(path, os.O_RDWR, 0)).OK(t)
	t.Cleanup(func() { _ = file.Close() })
	proctest.Try(unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK)).OK(t)
}

// What root saw in this boot and is lost or garbled is unknown, and never empty. The error names the file, its owner
// and the command that begins again; nothing is written before.
func TestLostStateIsUnknown(t *testing.T) {
	commands := map[string]string{"envs.json": "genv envs --reset", "devices.json": "genv devices --reset"}
	for name, command := range commands {
		for loss, lose := range losses() {
			t.Run(name+"/"+loss, func(t *testing.T) {
				store, machine, dir, root := kept(t)
				lose(t, filepath.Join(dir, name))
				before, _ := os.Lstat(filepath.Join(dir, name))
				for _, s := range []*disk.Store{store, disk.New(dir, disk.Config{RootDir: root, System: machine})} {
					_, err := s.Read(t.Context())
					require.Error(t, err)
					if loss == "the whole folder" {
						name, command = "envs.json", commands["envs.json"]
					}
					require.ErrorContains(t, err, filepath.Join(dir, name))
					require.ErrorContains(t, err, command)
					require.Error(t, s.Update(t.Context(), enter(7)))
				}
				if before == nil {
					require.NoFileExists(t, filepath.Join(dir, name))
				} else {
					require.True(t, os.SameFile(before, proctest.Try(os.Lstat(filepath.Join(dir, name))).OK(t)), "it stays as it is")
				}
				if loss == "a folder" || loss == "leased" {
					return // root removes it first
				}
				require.NoError(t, store.Reset(t.Context(), state.Envs))
				require.NoError(t, store.Reset(t.Context(), state.Devices, gpus(2)...))
				files := read(t, store)
				require.Empty(t, files.Environments)
				require.Len(t, files.Devices, 2)
			})
		}
	}
}

func TestALossIsDescribed(t *testing.T) {
	store, _, dir, _ := kept(t)
	path := filepath.Join(dir, "envs.json")
	put(t, dir, "envs.json", "garbage")
	changed := time.Date(2026, 11, 20, 21, 10, 33, 0, time.Local)
	require.NoError(t, os.Chtimes(path, changed, changed))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(path, 64999, 64999))
	}
	_, err := store.Read(t.Context())
	require.ErrorIs(t, err, disk.ErrCorrupt)
	require.ErrorContains(t, err, "was last changed at 2026-11-20 21:10:33")
	if os.Geteuid() == 0 {
		require.ErrorContains(t, err, "it belongs to uid 64999")
	}
	require.NoError(t, os.Remove(path))
	require.ErrorIs(t, proctest.Try(store.Read(t.Context())).Err, disk.ErrLost)
	require.Equal(t, []state.File{state.Envs}, proctest.Try(store.Examine()).OK(t).Lost)
}

// After a reboot, and before root has looked, what is missing is empty.
func TestMissingIsEmptyAfterAReboot(t *testing.T) {
	store, machine, dir, _ := kept(t)
	machine.boot = "boot-2"
	require.NoError(t, os.RemoveAll(dir))
	files, err := store.Read(t.Context())
	require.ErrorIs(t, err, state.ErrNoDevices)
	require.Empty(t, files.Environments)
	require.NoError(t, os.Remove(filepath.Join(dir, "envs.json")))
	require.ErrorIs(t, proctest.Try(store.Read(t.Context())).Err, disk.ErrLost, "root has seen it in this boot by now")
}

// An environment that is in no file any more was registered, as far as root saw it.
func TestADroppedEnvironmentIsRemembered(t *testing.T) {
	store, machine, dir, root := kept(t)
	put(t, dir, "envs.json", `{"envs": []}`) // as 1.4.3 writes where a file is missing
	for range 2 {
		files := read(t, store)
		require.Empty(t, files.Environments)
		require.True(t, files.WasRegistered("1102", alice))
		require.False(t, files.WasRegistered("1102", bob))
		require.False(t, files.WasRegistered("7", alice))
	}
	machine.boot = "boot-2"
	files := read(t, disk.New(dir, disk.Config{RootDir: root, System: machine}))
	require.False(t, files.WasRegistered("1102", alice), "no process outlives a reboot")
}

// Without root a file that is missing is an error as well.
func TestAUserKnowsThatStateIsLost(t *testing.T) {
	proctest.NeedRoot(t)
	_, _, dir, root := kept(t)
	read(t, disk.New(dir, disk.Config{RootDir: root}))
	require.NoError(t, os.Chmod(filepath.Dir(root), 0o755))
	require.NoError(t, os.Remove(filepath.Join(dir, "envs.json")))
	out, err := asUser(child(t.Context(), "look", dir, root), 4001).CombinedOutput()
	require.Error(t, err, string(out))
	require.Contains(t, string(out), "state is lost")
	require.NoFileExists(t, filepath.Join(dir, "envs.json"))
}

func TestInAnotherNamespaceMissingIsNotEmpty(t *testing.T) {
	_, _, dir, root := kept(t)
	store := disk.New(dir, disk.Config{RootDir: root, System: &fakeSystem{boot: "boot-1", namespaces: elsewhere}})
	require.True(t, read(t, store).LivenessUnknown)
	require.NoError(t, os.Remove(filepath.Join(dir, "envs.json")))
	require.ErrorIs(t, proctest.Try(store.Read(t.Context())).Err, disk.ErrLost)
	require.ErrorIs(t, store.Update(t.Context(), enter(7)), disk.ErrLost)
	require.NoFileExists(t, filepath.Join(dir, "envs.json"))
}

// TestAnOddAttachmentIsNotNone: what one wrong character of devices.json hides is unknown.
func TestAnOddAttachmentIsNotNone(t *testing.T) {
	for name, change := range map[string][2]string{
		"an id that is a number":   {`"eid": "1102"`, `"eid": 1102`},
		"an id under another key":  {`"eid": "1102"`, `"id": "1102"`},
		"an index that is a text":  {`"index": 0`, `"index": "0"`},
		"an id that can't be read": {`"eid": "1102"`, `"eid": ""`},
	} {
		t.Run(name, func(t *testing.T) {
			store, _, dir, _ := kept(t)
			data := proctest.ReadFile(t, filepath.Join(dir, "devices.json"))
			changed := strings.Replace(string(data), change[0], change[1], 1)
			require.NotEqual(t, string(data), changed, "the row changes nothing")
			put(t, dir, "devices.json", changed)
			require.ErrorIs(t, proctest.Try(store.Read(t.Context())).Err, disk.ErrCorrupt)
			require.Equal(t, changed, proctest.ReadText(t, filepath.Join(dir, "devices.json")))
		})
	}
}

func TestWhere(t *testing.T) {
	env := map[string]string{}
	get := func(name string) string { return env[name] }
	path := func() string { return filepath.Join(disk.RunDir(get), disk.RootFile(get, "asked")) }
	require.Equal(t, "/run/genv/asked.json", path())
	env["GENV_TMPDIR"] = "/var/tmp/genv/"
	require.Equal(t, "/run/genv/asked.json", path(), "it is the default state folder")
	env["GENV_TMPDIR"], env["GENV_ROOT_DIR"] = "/tmp/x", "/tmp/root"
	require.Regexp(t, `^/tmp/root/run/asked\.[0-9a-f]{16}\.json$`, path())
}

func TestOpenDir(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a/b")
	proctest.Try(folder.MakeTrusted(path)).OK(t).Close()
	require.NoError(t, os.Chmod(path, 0o777))
	require.ErrorIs(t, proctest.Try(folder.MakeTrusted(path)).Err, folder.ErrUnsafe)
}

// TestAMountThatComesAndGoes: root doesn't open what is mounted over a file since it looked for mounts.
func TestAMountThatComesAndGoes(t *testing.T) {
	proctest.NeedRoot(t)
	for _, file := range []string{"envs.json", "devices.json", "genv.lock"} {
		t.Run(file, func(t *testing.T) {
			store, _, dir, _ := kept(t)
			path := filepath.Join(dir, file)
			if err := unix.Mount("/dev/null", path, "", unix.MS_BIND, ""); err != nil {
				t.Skip(err)
			}
			t.Cleanup(func() { require.NoError(t, unix.Unmount(path, unix.MNT_DETACH)) })
			require.ErrorIs(t, store.Update(t.Context(), enter(7)), folder.ErrTampered)
			require.ErrorContains(t, proctest.Try(store.Read(t.Context())).Err, "tampering: a file system is mounted at "+path)
		})
	}
}

// failToWrite is a child: DIR ROOT WHAT, on a disk that is full.
func failToWrite(args []string) error {
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 64, Max: 64}); err != nil {
		return err
	}
	store := storeWithNotes(args[0], args[1])
	if err := move(store, args[2]); !errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("not the error of a full disk: %w", err)
	}
	return nil
}

// What fails in the middle, as on a full disk, leaves the state as it was, and is said.
func TestMovesAndChangesThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"takeover", "handover", "change"} {
		h := hostFor(t, what)
		if what == "handover" { // the copy has to be written again
			require.NoError(t, os.WriteFile(filepath.Join(h.dir, "envs.json"), []byte("[]"), 0o600))
		}
		proctest.Output(t, child(t.Context(), "fail-to-write", h.dir, h.root, what))
		h.requireState(t, "7")
		require.Equal(t, map[string]os.FileMode{"takeover": 0o777, "handover": 0o755, "change": 0o755}[what], mode(t, h.dir))
		require.Equal(t, what != "takeover", ownedDir(t, h.store) != "")
		require.NoError(t, h.store.Update(t.Context(), enter(8)))
		h.requireState(t, "7", "8")
	}
}
