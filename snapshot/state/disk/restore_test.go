package disk_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// kept is a state folder with 1102 of alice on device 0, of which root has a
// copy.
func kept(t *testing.T) (store *disk.Store, machine *fakeSystem, dir, root string) {
	t.Helper()
	dir, root = sharedDir(t), rootDir(t)
	machine = &fakeSystem{boot: "boot-1", uptime: 5000}
	store = disk.New(dir, disk.Config{RootDir: root, System: machine})
	began(t, store, machine)
	return store, machine, dir, root
}

// losses are ways to lose a state file.
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
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	_, err = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	require.NoError(t, err)
}

func TestLostFilesAreRestoredFromRootsCopy(t *testing.T) {
	for _, name := range []string{"envs.json", "devices.json"} {
		for loss, lose := range losses() {
			t.Run(name+"/"+loss, func(t *testing.T) {
				store, _, dir, _ := kept(t)
				lose(t, filepath.Join(dir, name))
				for range 2 {
					files, err := store.Read(t.Context())
					require.NoError(t, err)
					require.Equal(t, []snapshot.PID{1102}, files.Environment("1102").PIDs)
					require.Equal(t, indices{0}, files.AttachedTo("1102"))
					require.Len(t, files.Restorations, 1)
					require.WithinDuration(t, time.Now(), files.Restorations[0].At, time.Minute)
					require.Equal(t, snapshot.StartTime(5000), files.Restorations[0].Since)
				}
				info, err := os.Lstat(filepath.Join(dir, name))
				require.NoError(t, err)
				require.Equal(t, os.FileMode(0o666), info.Mode())
			})
		}
	}
}

func TestARestorationDescribesTheBadFile(t *testing.T) {
	store, _, dir, _ := kept(t)
	path := filepath.Join(dir, "envs.json")
	require.NoError(t, os.Remove(path))
	files, err := store.Read(t.Context())
	require.NoError(t, err)
	require.Len(t, files.Warnings, 1)
	require.Contains(t, files.Warnings[0], path+" was missing: restored from root's copy of 2")
	put(t, dir, "envs.json", "garbage")
	changed := time.Date(2026, 11, 20, 21, 10, 33, 0, time.Local)
	require.NoError(t, os.Chtimes(path, changed, changed))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(path, 64999, 64999))
	}
	files, err = store.Read(t.Context())
	require.NoError(t, err)
	require.Len(t, files.Warnings, 1)
	require.Contains(t, files.Warnings[0], "state is corrupt")
	require.Contains(t, files.Warnings[0], "and was last changed at 2026-11-20 21:10:33")
	if os.Geteuid() == 0 {
		require.Contains(t, files.Warnings[0], "belongs to uid 64999")
	}
	require.Equal(t, "garbage", readFile(t, path+".corrupt-20261120-211033"), "it is kept aside")
}

// What must not be restored.
func TestIntactFilesAreNotRestored(t *testing.T) {
	t.Run("after a reboot missing is empty", func(t *testing.T) {
		store, machine, dir, _ := kept(t)
		machine.boot = "boot-2"
		require.NoError(t, os.Remove(filepath.Join(dir, "envs.json")))
		files, err := store.Read(t.Context())
		require.NoError(t, err)
		require.Empty(t, files.Environments)
		require.Empty(t, files.Restorations)
	})
	t.Run("who deactivates is gone", func(t *testing.T) {
		store, _, dir, _ := kept(t)
		require.NoError(t, store.Update(t.Context(), func(b *state.Files) error { b.Deactivate(1102); return nil }))
		require.NoError(t, os.Remove(filepath.Join(dir, "envs.json")))
		files, err := store.Read(t.Context())
		require.NoError(t, err)
		require.Empty(t, files.Environments)
	})
	t.Run("a reset accepts the loss", func(t *testing.T) {
		store, _, dir, _ := kept(t)
		put(t, dir, "envs.json", "garbage")
		require.NoError(t, store.ResetEnvironments(t.Context()))
		for range 2 {
			files, err := store.Read(t.Context())
			require.NoError(t, err)
			require.Empty(t, files.Environments)
			require.NoError(t, os.Remove(filepath.Join(dir, "envs.json")))
		}
	})
	t.Run("nor does a reset of the devices bring attachments back", func(t *testing.T) {
		store, _, dir, _ := kept(t)
		require.NoError(t, store.ResetDevices(t.Context(), gpus(2)))
		require.NoError(t, os.Remove(filepath.Join(dir, "devices.json")))
		files, err := store.Read(t.Context())
		require.NoError(t, err)
		require.Len(t, files.Environments, 1)
		require.Empty(t, files.AttachedTo("1102"))
	})
	t.Run("a copy that is cut", func(t *testing.T) {
		store, _, dir, root := kept(t)
		copies, err := filepath.Glob(root + "/*/last-good")
		require.NoError(t, err)
		require.Len(t, copies, 1)
		require.NoError(t, os.Truncate(copies[0], 200))
		put(t, dir, "envs.json", "garbage")
		_, err = store.Read(t.Context())
		require.ErrorIs(t, err, disk.ErrCorrupt)
	})
}

// Without root a file that is missing is an error as one that is corrupt: a user's
// genv can't see what began after the copy, and missing is not empty.
func TestAUserRestoresNothing(t *testing.T) {
	proctest.NeedRoot(t)
	_, _, dir, root := kept(t)
	store := disk.New(dir, disk.Config{RootDir: root})
	_, err := store.RegisterDevices(t.Context(), gpus(1))
	require.NoError(t, err)
	shell := sleeper(t, nil)
	require.NoError(t, store.Update(t.Context(), func(b *state.Files) error {
		return b.Activate(state.Activation{EID: ownEID(), UID: 0, PID: shell.pid, At: at("12:00:00")})
	}))
	require.NoError(t, os.Chmod(filepath.Dir(root), 0o755))
	for _, name := range []string{"envs.json", "devices.json"} {
		require.NoError(t, os.Remove(filepath.Join(dir, name)))
		out, err := asUser(child(t.Context(), "look", dir, root), 4001).CombinedOutput()
		require.Error(t, err, string(out))
		require.Contains(t, string(out), name+" is missing, although root has a copy of it")
		require.NoFileExists(t, filepath.Join(dir, name))
		_, err = store.Read(t.Context())
		require.NoError(t, err)
	}
	put(t, dir, "envs.json", "garbage")
	out, err := asUser(child(t.Context(), "look", dir, root), 4001).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "state is corrupt")
}

// A genv in another PID namespace can't restore, but knows that missing is not empty.
func TestInAnotherNamespaceMissingIsNotEmpty(t *testing.T) {
	_, _, dir, root := kept(t)
	store := disk.New(dir, disk.Config{RootDir: root, System: &fakeSystem{boot: "boot-1", namespaces: elsewhere}})
	files, err := store.Read(t.Context())
	require.NoError(t, err)
	require.True(t, files.LivenessUnknown)
	require.NoError(t, os.Remove(filepath.Join(dir, "envs.json")))
	_, err = store.Read(t.Context())
	require.ErrorIs(t, err, disk.ErrLost)
	require.ErrorIs(t, store.Update(t.Context(), enter(7)), disk.ErrLost)
	require.NoFileExists(t, filepath.Join(dir, "envs.json"))
}

// Whoever replaces the folder may write a note into it that names other namespaces.
func TestAFolderThatWasReplacedIsRestored(t *testing.T) {
	for _, in := range []system.Namespaces{here, elsewhere} {
		dir, root := sharedDir(t), rootDir(t)
		machine := &fakeSystem{boot: "boot-1", uptime: 5000, namespaces: in}
		store := disk.New(dir, disk.Config{RootDir: root, System: machine})
		began(t, store, machine)
		require.NoError(t, os.Rename(dir, dir+".old"))
		require.NoError(t, os.Mkdir(dir, 0o777))
		writeInside(t, dir, "boot-1", system.Namespaces{PID: 5, User: 5})
		files, err := store.Read(t.Context())
		require.NoError(t, err)
		require.False(t, files.LivenessUnknown)
		require.Equal(t, indices{0}, files.AttachedTo("1102"))
	}
}

// Each process is spared after one restoration only, however often it is made
// necessary.
func TestTheGraceHoldsOnceForEachProcess(t *testing.T) {
	_, machine, dir, root := kept(t)
	now := time.Now()
	store := disk.New(dir, disk.Config{RootDir: root, System: machine, Now: func() time.Time { return now }})
	lose := func(uptime snapshot.StartTime) state.Files {
		t.Helper()
		machine.uptime = uptime
		require.NoError(t, os.Remove(filepath.Join(dir, "envs.json")))
		files, err := store.Read(t.Context())
		require.NoError(t, err)
		return files
	}
	files := lose(7000)
	require.False(t, files.InRestorationGrace(4999, now), "began before the state files were last whole")
	require.True(t, files.InRestorationGrace(5000, now))
	require.True(t, files.InRestorationGrace(0, now), "unknown start")
	for uptime := range snapshot.StartTime(65) {
		files = lose(8000 + uptime)
	}
	require.Len(t, files.Restorations, 60, "the note is bounded")
	require.True(t, files.InRestorationGrace(5000, now.Add(state.RestorationGrace-1)), "for the whole minute")
	now = now.Add(state.RestorationGrace)
	files = lose(20_000)
	require.False(t, files.InRestorationGrace(5000, now), "once")
	require.True(t, files.InRestorationGrace(19_000, now))
}

// Environments that began after the copy are found again by their processes.
func TestEnvironmentsNewerThanTheCopyAreRecovered(t *testing.T) {
	store, machine, dir, _ := kept(t)
	machine.running = []system.RunningProcess{
		job(2000, alice, "old"), // began before the copy, and was in no environment then
		job(6001, alice, "2020"), job(6000, alice, "2020"),
		job(6200, 0, "2020"),
		job(6050, bob, "train"), job(6060, alice, "train"), job(6061, 0, "train"), // whoever was first
		job(6300, bob, "6301"), job(6301, alice, ""), job(6302, alice, "6301"), // named after alice's process
		job(6400, alice, "1102"),
		with(job(6500, alice, ""), func(r *system.RunningProcess) { r.Environ = system.EnvironHidden }),
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "envs.json")))
	files, err := store.Read(t.Context())
	require.NoError(t, err)
	require.Len(t, files.Environments, 3)
	require.Equal(t, []snapshot.PID{1102}, files.Environment("1102").PIDs)
	require.Equal(t, alice, files.Environment("2020").UID)
	require.Equal(t, []snapshot.PID{6000, 6001}, files.Environment("2020").PIDs)
	require.Equal(t, alice, files.Environment("6301").UID)
	require.Equal(t, []snapshot.PID{6302}, files.Environment("6301").PIDs)
	require.Contains(t, strings.Join(files.Warnings, "\n"), "environment train, which began after the copy, is claimed by processes of several users")
	require.True(t, files.InRestorationGrace(6050, time.Now()))

	machine.running = append(machine.running, job(7000, bob, "7000"))
	files, err = store.Read(t.Context())
	require.NoError(t, err)
	require.Len(t, files.Environments, 3, "without a loss a claim registers nothing")
}

// What is killed at any step of a restoration leaves it to the next look.
func TestAKilledRestorationIsRepeated(t *testing.T) {
	for loss, lose := range losses() {
		steps := map[string]int{}
		for n := 0; ; n++ {
			store, machine, dir, root := kept(t)
			lose(t, filepath.Join(dir, "envs.json"))
			count, reached := 0, false
			store.OnStep(func(step string) {
				steps[step]++
				if count == n {
					reached = true
					panic("killed")
				}
				count++
			})
			func() {
				defer func() { _ = recover() }() // as if by SIGKILL, but for the lock and the descriptors
				_, _ = store.Read(t.Context())
			}()
			files, err := disk.New(dir, disk.Config{RootDir: root, System: machine}).Read(t.Context())
			require.NoError(t, err, "%s, step %d", loss, n)
			require.Equal(t, indices{0}, files.AttachedTo("1102"), "%s, step %d", loss, n)
			require.Len(t, files.Restorations, 1, "%s, step %d", loss, n)
			if !reached {
				break
			}
		}
		require.Contains(t, steps, "noted", loss)
		require.Contains(t, steps, "renamed envs.json", loss)
	}
}

func TestTheCopyIsWrittenOnlyWhenTheStateChanges(t *testing.T) {
	store, _, _, _ := kept(t)
	store.OnStep(func(step string) { require.NotContains(t, step, "cop") })
	for range 3 {
		_, err := store.Read(t.Context())
		require.NoError(t, err)
	}
}

func TestRecoveredEnvironmentsAreBounded(t *testing.T) {
	store, machine, dir, _ := kept(t)
	for pid := range snapshot.PID(1000) {
		machine.running = append(machine.running, job(6000+pid, bob, snapshot.EnvID(strconv.Itoa(int(pid)))))
	}
	machine.running = append(machine.running, job(8000, alice, "8000"), job(8001, bob, "another"))
	require.NoError(t, os.Remove(filepath.Join(dir, "envs.json")))
	files, err := store.Read(t.Context())
	require.NoError(t, err)
	require.Len(t, files.Environments, 1+64+1)
	require.NotNil(t, files.Environment("8000"), "another user's is not crowded out")
}

// insideNotes are contents of the note in the state folder, which any user may write.
func insideNotes(t testing.TB, dir string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "genv.host.json"))
	require.NoError(t, err)
	return []string{string(data), `{"pid_namespace": 4026532999, "user_namespace": 4026531837, "boot_id": "boot-1"}`, ""}
}

// noted is a state folder of which root has a note, and a Store of it in another PID
// namespace.
func noted(t testing.TB) (dir string, store *disk.Store) {
	t.Helper()
	dir, root := filepath.Join(t.TempDir(), "genv"), filepath.Join(t.TempDir(), "root")
	require.NoError(t, os.Mkdir(root, 0o755))
	_, err := disk.New(dir, disk.Config{RootDir: root, System: &fakeSystem{boot: "boot-1"}}).RegisterDevices(t.Context(), gpus(1))
	require.NoError(t, err)
	return dir, disk.New(dir, disk.Config{RootDir: root, System: &fakeSystem{boot: "boot-1", namespaces: elsewhere}})
}

func TestTheNoteInsideOnlyForbids(t *testing.T) {
	dir, store := noted(t)
	for _, inside := range insideNotes(t, dir) {
		put(t, dir, "genv.host.json", inside)
		files, err := store.Read(t.Context())
		require.NoError(t, err)
		require.True(t, files.LivenessUnknown, inside)
	}
}

// Whatever a user writes into the note inside the folder, it allows nothing. The
// decision is fuzzed without the files around it: a case takes microseconds.
func FuzzTheNoteInsideOnlyForbids(f *testing.F) {
	dir, store := noted(f)
	for _, inside := range insideNotes(f, dir) {
		f.Add(inside)
	}
	outside := store.RootNote(f)
	f.Fuzz(func(t *testing.T, inside string) {
		require.NotEmpty(t, outside.Refusal(elsewhere, inside))
		require.Empty(t, outside.Refusal(here, inside), "these are the namespaces of root's note")
	})
}
