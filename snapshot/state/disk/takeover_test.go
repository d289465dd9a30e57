package disk_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// ownedHost is a host with environment 7, attached to device 0 of four.
type ownedHost struct {
	dir, root string
	store     *disk.Store
}

func storeWithNotes(dir, root string) *disk.Store {
	return disk.New(dir, disk.Config{System: &fakeSystem{boot: "one"}, RootDir: root})
}

func newOwnedHost(t *testing.T) *ownedHost {
	t.Helper()
	h := &ownedHost{dir: sharedDir(t), root: filepath.Join(t.TempDir(), "root")}
	require.NoError(t, os.Chmod(filepath.Dir(filepath.Dir(h.root)), 0o755))
	require.NoError(t, os.Chmod(filepath.Dir(h.root), 0o755))
	require.NoError(t, os.Mkdir(h.root, 0o755))
	h.store = storeWithNotes(h.dir, h.root)
	register(t, h.store, 4)
	require.NoError(t, h.store.Update(t.Context(), enter(7)))
	return h
}

func (h *ownedHost) takeOver(t *testing.T) {
	t.Helper()
	done, _, err := h.store.TakeOver(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, done)
}

func (h *ownedHost) owned(name string) string { return filepath.Join(h.root, "host", name) }

// requireState requires exactly these environments, each attached to a device.
func (h *ownedHost) requireState(t *testing.T, eids ...snapshot.EnvID) {
	t.Helper()
	files := read(t, storeWithNotes(h.dir, h.root))
	var found []snapshot.EnvID
	for _, e := range files.Environments {
		found = append(found, e.EID)
		require.Len(t, files.AttachedTo(e.EID), 1, e.EID)
	}
	require.Equal(t, eids, found)
}

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	return proctest.Try(os.Lstat(path)).OK(t).Mode().Perm()
}

func TestTakeOverAndHandOver(t *testing.T) {
	h := newOwnedHost(t)
	before := proctest.ReadText(t, filepath.Join(h.dir, "envs.json"))
	moved := 0
	move := func(f *state.Files) error {
		moved++
		require.NotNil(t, f.Environment("7"))
		return nil
	}
	done, warnings, err := h.store.TakeOver(t.Context(), move)
	require.NoError(t, err)
	require.True(t, done)
	require.Empty(t, warnings)
	require.Equal(t, before, proctest.ReadText(t, h.owned("envs.json")))
	for name, want := range map[string]os.FileMode{"": 0o755, "envs.json": 0o644, "devices.json": 0o644, "owner.json": 0o644, "seen.json": 0o644} {
		require.Equal(t, want, mode(t, h.owned(name)), name)
	}
	for name, want := range map[string]os.FileMode{"": 0o755, "envs.json": 0o644, "devices.json": 0o644, "genv.lock": 0o666, "devices": 0o755, "devices/0.lock": 0o666, "devices/3.lock": 0o666} {
		require.Equal(t, want, mode(t, filepath.Join(h.dir, name)), name)
	}
	done, _, err = h.store.TakeOver(t.Context(), move)
	require.NoError(t, err)
	require.False(t, done, "only once")
	require.Equal(t, h.owned(""), ownedDir(t, h.store))

	require.NoError(t, h.store.Update(t.Context(), enter(8)))
	require.Equal(t, os.FileMode(0o600), mode(t, h.owned("genv.lock")))
	h.requireState(t, "7", "8")
	for _, name := range []string{"envs.json", "devices.json"} {
		require.Equal(t, proctest.ReadText(t, h.owned(name)), proctest.ReadText(t, filepath.Join(h.dir, name)), name)
	}

	require.True(t, proctest.Try(h.store.HandOver(t.Context(), move)).OK(t))
	require.Equal(t, 2, moved)
	for name, want := range map[string]os.FileMode{"": 0o777, "envs.json": 0o666, "devices.json": 0o666, "genv.lock": 0o666, "devices": 0o777} {
		require.Equal(t, want, mode(t, filepath.Join(h.dir, name)), name)
	}
	require.Empty(t, ownedDir(t, h.store))
	h.requireState(t, "7", "8")
	require.NoError(t, h.store.Update(t.Context(), func(f *state.Files) error {
		f.Detach("8")
		f.Deactivate(8)
		return nil
	}))
	h.requireState(t, "7")
	h.takeOver(t)
	h.requireState(t, "7")
}

// The copy is written and never read: what is in it doesn't count.
func TestTheCopyIsNeverReadBack(t *testing.T) {
	h := newOwnedHost(t)
	h.takeOver(t)
	envs := filepath.Join(h.dir, "envs.json")
	was := proctest.ReadText(t, envs)
	for _, forge := range []func() error{
		func() error { return os.WriteFile(envs, []byte("[]"), 0o600) },
		func() error { return os.Remove(envs) },
		func() error { return errors.Join(os.Remove(envs), os.Mkdir(envs, 0o700)) },
		func() error { return errors.Join(os.Remove(envs), os.Symlink("/etc/passwd", envs)) },
		func() error { return os.Chmod(h.dir, 0o777) },
		func() error { return os.Chmod(filepath.Join(h.dir, "genv.lock"), 0o600) },
		func() error {
			lock := filepath.Join(h.dir, "genv.lock")
			return errors.Join(os.Remove(lock), os.Symlink("/etc/passwd", lock))
		},
		func() error { return os.RemoveAll(h.dir) },
	} {
		require.NoError(t, forge())
		h.requireState(t, "7")
		require.NoError(t, h.store.Publish())
		require.Equal(t, was, proctest.ReadText(t, envs))
		require.Equal(t, os.FileMode(0o755), mode(t, h.dir))
		require.Equal(t, os.FileMode(0o666), mode(t, filepath.Join(h.dir, "genv.lock")))
	}
}

// hostFor is a host for a move: see move.
func hostFor(t *testing.T, what string) *ownedHost {
	t.Helper()
	h := newOwnedHost(t)
	if what != "takeover" {
		h.takeOver(t)
	}
	return h
}

func stepsOf(t *testing.T, what string) (steps []string) {
	t.Helper()
	h := hostFor(t, what)
	h.store.OnStep(func(step string) { steps = append(steps, step) })
	require.NoError(t, move(h.store, what))
	return slices.Compact(steps)
}

// moveAndDie is a child: DIR ROOT WHAT STEP, kills itself at a step of a takeover, of a
// handover or of a change in between.
func moveAndDie(args []string) error {
	runtime.LockOSThread() // strace(1) counts the calls of each thread
	store := storeWithNotes(args[0], args[1])
	store.OnStep(func(step string) {
		if step == args[3] {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	})
	return fmt.Errorf("lived on past the step %q: %w", args[3], move(store, args[2]))
}

func move(store *disk.Store, what string) (err error) {
	switch what {
	case "takeover":
		_, _, err = store.TakeOver(context.Background(), nil)
	case "handover":
		_, err = store.HandOver(context.Background(), nil)
	case "change":
		err = store.Update(context.Background(), enter(20))
	}
	return err
}

// What is killed at any step of a takeover or of a handover has lost nothing: the state is
// the same for every reader, and the next attempt ends it.
func TestMovesThatAreKilled(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"takeover", "handover"} {
		steps := stepsOf(t, what)
		require.Greater(t, len(steps), 3, what)
		for _, step := range steps {
			t.Run(what+" "+step, func(t *testing.T) {
				t.Parallel()
				h := hostFor(t, what)
				output, err := child(t.Context(), "move-and-die", h.dir, h.root, what, step).CombinedOutput()
				require.ErrorContains(t, err, "signal: killed", string(output))
				h.requireState(t, "7")
				again := storeWithNotes(h.dir, h.root)
				require.NoError(t, again.Update(t.Context(), enter(8)), "root's genv goes on")
				h.requireState(t, "7", "8")
				require.NoError(t, move(again, what))
				h.requireState(t, "7", "8")
				require.Equal(t, what == "takeover", ownedDir(t, again) != "")
				require.Equal(t, map[string]os.FileMode{"takeover": 0o755, "handover": 0o777}[what], mode(t, h.dir))
			})
		}
	}
}

// A change in root's state that is killed is made as a whole or not at all.
func TestChangesOfRootsStateThatAreKilled(t *testing.T) {
	t.Parallel()
	steps := stepsOf(t, "change")
	require.Contains(t, steps, "synced")
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			h := hostFor(t, "change")
			output, err := child(t.Context(), "move-and-die", h.dir, h.root, "change", step).CombinedOutput()
			require.ErrorContains(t, err, "signal: killed", string(output))
			files := read(t, h.store)
			require.NotNil(t, files.Environment("7"))
			require.Len(t, files.AttachedTo("7"), 1)
			if slices.Index(steps, step) >= slices.Index(steps, "synced") {
				require.NotNil(t, files.Environment("20"))
			}
			require.NoError(t, h.store.Publish())
			require.Equal(t, proctest.ReadText(t, h.owned("envs.json")), proctest.ReadText(t, filepath.Join(h.dir, "envs.json")))
		})
	}
}

// A genv that waits for the lock while the state is moved changes the state where it is then.
func TestWaitingForTheLockDuringAMove(t *testing.T) {
	h := newOwnedHost(t)
	for i, what := range []string{"takeover", "handover"} {
		done := make(chan error, 1)
		begun := false
		h.store.OnStep(func(string) {
			if !begun {
				begun = true
				go func() { done <- storeWithNotes(h.dir, h.root).Update(context.Background(), enter(snapshot.PID(20+i))) }()
			}
		})
		require.NoError(t, move(h.store, what))
		require.NoError(t, <-done)
	}
	require.Len(t, read(t, h.store).Environments, 3)
}

func TestWhatIsNotTakenOver(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(*ownedHost) error
		want  error
	}{
		"corrupt": {func(h *ownedHost) error {
			return errors.Join(os.RemoveAll(h.root), os.WriteFile(filepath.Join(h.dir, "envs.json"), []byte("{"), 0o600))
		}, disk.ErrCorrupt},
		"a folder in which others may write": {func(h *ownedHost) error {
			return errors.Join(os.Mkdir(h.owned(""), 0o700), os.Chmod(h.root, 0o777))
		}, nil},
		"the state of another folder": {func(h *ownedHost) error {
			return errors.Join(os.Mkdir(h.owned(""), 0o755), os.WriteFile(h.owned("owner.json"), []byte(`{"schema":"genv.owner/1","state_dir":"/elsewhere"}`), 0o600))
		}, folder.ErrUnsafe},
		"a newer version": {func(h *ownedHost) error {
			return errors.Join(os.Mkdir(h.owned(""), 0o755), os.WriteFile(h.owned("owner.json"), []byte(`{"schema":"genv.owner/2"}`), 0o600))
		}, folder.ErrUnsafe},
	} {
		t.Run(name, func(t *testing.T) {
			h := newOwnedHost(t)
			require.NoError(t, tt.spoil(h))
			envs := proctest.ReadText(t, filepath.Join(h.dir, "envs.json"))
			_, _, err := storeWithNotes(h.dir, h.root).TakeOver(t.Context(), nil)
			require.Error(t, err)
			if tt.want != nil {
				require.ErrorIs(t, err, tt.want)
			}
			require.Equal(t, envs, proctest.ReadText(t, filepath.Join(h.dir, "envs.json")))
			require.Equal(t, os.FileMode(0o777), mode(t, h.dir), "users can go on")
		})
	}
}

func TestRootsStateThatIsLostOrCorrupt(t *testing.T) {
	h := newOwnedHost(t)
	h.takeOver(t)
	require.NoError(t, os.WriteFile(h.owned("envs.json"), []byte("{"), 0o600))
	require.ErrorIs(t, proctest.Try(h.store.Read(t.Context())).Err, disk.ErrCorrupt)
	require.NoError(t, os.Remove(h.owned("envs.json")))
	for _, read := range []func(context.Context) (state.Files, error){h.store.Read, h.store.ReadRaw, disk.NewCache(h.store).Read} {
		require.ErrorIs(t, proctest.Try(read(t.Context())).Err, disk.ErrLost)
	}
	require.ErrorIs(t, h.store.Update(t.Context(), enter(8)), disk.ErrLost)
	require.ErrorIs(t, proctest.Try(h.store.HandOver(t.Context(), nil)).Err, disk.ErrLost)
	require.Equal(t, []state.File{state.Envs}, proctest.Try(h.store.Examine()).OK(t).Lost)
	require.NoError(t, h.store.Reset(t.Context(), state.Envs))
	h.requireState(t)
}

// writeAsUser is a child: DIR ROOT, tries what a user may try with root's state.
func writeAsUser(args []string) error {
	store := storeWithNotes(args[0], args[1])
	files, err := store.Read(context.Background())
	fmt.Println(len(files.Environments), files.Warnings, err, store.MayWrite())
	_, err = store.ReadRaw(context.Background())
	fmt.Println(err)
	fmt.Println(errors.Is(store.Update(context.Background(), enter(9)), disk.ErrOwned), errors.Is(store.Reset(context.Background(), state.Envs), disk.ErrOwned))
	_, err = store.RegisterDevices(context.Background(), gpus(1))
	fmt.Println(err)
	for _, dir := range []string{args[0], filepath.Join(args[1], "host"), args[1]} {
		for _, name := range []string{"envs.json", "devices.json", "seen.json", "owner.json", "new"} {
			path := filepath.Join(dir, name)
			if file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666); err == nil {
				fmt.Println("wrote", path, file.Close())
			}
			if os.Remove(path) == nil || os.Rename(path, path+".old") == nil || os.Chmod(path, 0o777) == nil {
				fmt.Println("changed", path)
			}
		}
		if os.Rename(dir, dir+".old") == nil {
			fmt.Println("moved", dir)
		}
	}
	lock, err := os.Open(filepath.Join(args[0], "genv.lock")) // as 1.4.3's readers
	fmt.Println(err, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	_, err = os.Open(filepath.Join(args[1], "host/genv.lock"))
	fmt.Println(os.IsPermission(err))
	return nil
}

func ownedDir(t *testing.T, s *disk.Store) string {
	t.Helper()
	return proctest.Try(s.OwnedDir()).OK(t)
}
