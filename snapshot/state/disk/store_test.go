package disk_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

const recorded = "../../testdata/genv-1.4.3/state"

// recordedFolder is a state folder that 1.4.3 has written.
func recordedFolder(t *testing.T) string {
	t.Helper()
	dir := sharedDir(t)
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Chmod(dir, 0o777))
	for _, name := range []string{"envs.json", "devices.json"} {
		put(t, dir, name, proctest.ReadText(t, filepath.Join(recorded, name)))
	}
	return dir
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	require.NoError(t, os.Chmod(filepath.Join(dir, name), 0o666))
}

func TestDir(t *testing.T) {
	require.Equal(t, "/var/tmp/genv", disk.Dir(func(string) string { return "" }))
	require.Equal(t, "/x", disk.Dir(func(name string) string { return map[string]string{"GENV_TMPDIR": "/x"}[name] }))
}

func TestTheFirstUseCreatesEverythingForAllUsers(t *testing.T) {
	for _, umask := range []string{"0", "63", "511"} { // 0, 077, 0777
		t.Run(umask, func(t *testing.T) {
			dir := sharedDir(t)
			proctest.Output(t, child(t.Context(), "first-use", dir, umask))
			for name, mode := range map[string]fs.FileMode{
				".": fs.ModeDir | 0o777, "devices": fs.ModeDir | 0o777,
				"envs.json": 0o666, "devices.json": 0o666, "genv.lock": 0o666,
				"devices/0.lock": 0o666, "devices/1.lock": 0o666,
			} {
				require.Equal(t, mode, proctest.Try(os.Lstat(filepath.Join(dir, name))).OK(t).Mode(), name)
			}
			require.Len(t, proctest.Names(t, dir), 4, "nothing else is left")
		})
	}
}

func TestAFolderKeepsTheModeThatItHas(t *testing.T) {
	dir := sharedDir(t)
	require.NoError(t, os.Mkdir(dir, 0o700))
	register(t, everyoneLives(dir), 1)
	require.Equal(t, fs.FileMode(0o700), proctest.Try(os.Stat(dir)).OK(t).Mode().Perm())
}

func TestWhat143WroteIsReadAndLeftAsItIs(t *testing.T) {
	dir := recordedFolder(t)
	files := read(t, everyoneLives(dir))
	require.Len(t, files.Environments, 2)
	require.Equal(t, indices{0, 1}, files.AttachedTo("1667"))
	requireRecorded(t, dir, "envs.json", "devices.json")
}

func TestAnUpdateIsWrittenAs143Reads(t *testing.T) {
	dir := recordedFolder(t)
	store := everyoneLives(dir)
	require.NoError(t, store.Update(t.Context(), func(b *state.Files) error {
		b.Detach("1667")
		_, err := b.Attach(state.AttachRequest{EID: "1667", Indices: indices{0, 1}, OverSubscribe: true, At: at("21:10:33")})
		b.Detach("2020", 0)
		_, err2 := b.Attach(state.AttachRequest{EID: "2020", Indices: indices{0}, Memory: snapshot.MustMemory("4g"), OverSubscribe: true, At: at("21:10:34")})
		return errors.Join(err, err2)
	}))
	requireRecorded(t, dir, "devices.json")
}

func TestAnErrorOfTheChangeLeavesTheFilesAlone(t *testing.T) {
	dir := recordedFolder(t)
	refused := errors.New("refused")
	err := everyoneLives(dir).Update(t.Context(), func(b *state.Files) error {
		b.Detach("1667")
		b.Deactivate(25938)
		return refused
	})
	require.Equal(t, refused, err)
	requireRecorded(t, dir, "envs.json", "devices.json")
}

func TestUnreadableContentsAreNotWritten(t *testing.T) {
	dir := recordedFolder(t)
	err := everyoneLives(dir).Update(t.Context(), func(b *state.Files) error {
		b.Environments[0].Config.Name = "a\nb"
		return nil
	})
	require.ErrorIs(t, err, snapshot.ErrInvalid)
	requireRecorded(t, dir, "envs.json")
}

func TestDevicesAreNotKnownBeforeTheyAreDiscovered(t *testing.T) {
	dir := sharedDir(t)
	store := everyoneLives(dir)
	require.ErrorIs(t, proctest.Try(store.Read(t.Context())).Err, state.ErrNoDevices)
	require.NoError(t, store.Update(t.Context(), func(b *state.Files) error {
		return b.Activate(state.Activation{EID: "7", PID: 7, At: at("12:00:00")})
	}), "an environment needs no device")
	files, err := store.Read(t.Context())
	require.ErrorIs(t, err, state.ErrNoDevices)
	require.Len(t, files.Environments, 1, "the environments are still valid")
	require.NoFileExists(t, filepath.Join(dir, "devices.json"))
	require.ErrorIs(t, store.Update(t.Context(), enter(8)), state.ErrNoDevices)

	files = proctest.Try(store.RegisterDevices(t.Context(), gpus(2))).OK(t)
	require.Equal(t, gpus(2), files.Devices)
	_ = read(t, store)
}

func TestAHostWithoutDevicesIsNotOneWhoseDevicesAreUnknown(t *testing.T) {
	store := everyoneLives(sharedDir(t))
	proctest.Try(store.RegisterDevices(t.Context(), nil)).OK(t)
	require.Empty(t, read(t, store).Devices)
}

func TestRegisterDevicesNotesWhatItKept(t *testing.T) {
	store := everyoneLives(recordedFolder(t))
	files := proctest.Try(store.RegisterDevices(t.Context(), nil)).OK(t)
	require.Len(t, files.Warnings, 3, "0, 1 and 3 are attached")
	require.Len(t, files.Devices, 3)
}

func TestReadRawKeepsTheDeadAndWritesNothing(t *testing.T) {
	dir := recordedFolder(t)
	require.Len(t, proctest.Try(disk.New(dir, disk.Config{System: graveyard()}).ReadRaw(t.Context())).OK(t).Environments, 2)
	requireRecorded(t, dir, "envs.json")
}

// graveyard is a machine where all processes of the recording are gone.
func graveyard() *fakeSystem {
	return &fakeSystem{processes: dead(25936, 25937, 25938)}
}

func TestReadDropsTheDeadAndWritesThatBack(t *testing.T) {
	dir := recordedFolder(t)
	store := disk.New(dir, disk.Config{System: graveyard()})
	files := read(t, store)
	require.Empty(t, files.Environments)
	require.Empty(t, files.AttachedTo("1667"))

	raw := proctest.Try(store.ReadRaw(t.Context())).OK(t)
	require.Empty(t, raw.Environments)
	require.Empty(t, raw.AttachedTo("2020"))
	require.JSONEq(t, `{"envs": []}`, proctest.ReadText(t, filepath.Join(dir, "envs.json")))
}

func TestCleanup(t *testing.T) {
	for _, tt := range []struct {
		name    string
		process system.Liveness
		kernel  system.Liveness
		lives   bool
	}{
		{"both gone", system.Gone, system.Gone, false},
		{"the process lives", system.Alive, system.Gone, true},
		{"the process cannot be seen", system.Unknown, system.Gone, true},
		{"the kernel lives", system.Gone, system.Alive, true},
		{"the kernel cannot be seen", system.Gone, system.Unknown, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			machine := &fakeSystem{
				processes: map[snapshot.PID]system.ProcessStatus{7: {Liveness: tt.process}},
				kernels:   map[string]system.Liveness{"k": tt.kernel},
			}
			dir := sharedDir(t)
			require.NoError(t, everyoneLives(dir).Update(t.Context(), func(b *state.Files) error {
				return b.Activate(state.Activation{EID: "7", PID: 7, KernelID: "k", At: at("12:00:00")})
			}))
			files, err := disk.New(dir, disk.Config{System: machine}).Read(t.Context())
			require.ErrorIs(t, err, state.ErrNoDevices)
			require.Equal(t, tt.lives, files.Environment("7") != nil)
		})
	}
}

func TestResetReplacesBrokenFiles(t *testing.T) {
	for _, broken := range []string{"{", ""} {
		dir := recordedFolder(t)
		put(t, dir, "envs.json", broken)
		put(t, dir, "devices.json", broken)
		store := everyoneLives(dir)
		require.ErrorIs(t, proctest.Try(store.Read(t.Context())).Err, disk.ErrCorrupt)
		require.NoError(t, store.Reset(t.Context(), state.Envs))
		require.NoError(t, store.Reset(t.Context(), state.Devices, gpus(2)...))
		files := read(t, store)
		require.Len(t, files.Devices, 2)
		require.Empty(t, files.AttachedTo("1667"))
		require.Empty(t, files.Environments)
	}
}

func TestResetReplacesALinkAndNotItsTarget(t *testing.T) {
	dir := recordedFolder(t)
	target := filepath.Join(t.TempDir(), "target")
	require.NoError(t, os.WriteFile(target, []byte("precious"), 0o600))
	require.NoError(t, os.Remove(filepath.Join(dir, "envs.json")))
	require.NoError(t, os.Symlink(target, filepath.Join(dir, "envs.json")))
	store := everyoneLives(dir)
	require.NoError(t, store.Reset(t.Context(), state.Envs))
	require.Equal(t, "precious", proctest.ReadText(t, target))
	_ = read(t, store)
}

func TestOwnersThatTheKernelContradicts(t *testing.T) {
	uid := livingOf
	unseen := system.ProcessStatus{Liveness: system.Alive}
	names := func(_ context.Context, uid snapshot.UID) snapshot.Username {
		return map[snapshot.UID]snapshot.Username{1001: "alice"}[uid]
	}
	for _, tt := range []struct {
		name      string
		uid       snapshot.UID
		username  snapshot.Username
		processes []system.ProcessStatus
		mismatch  bool
	}{
		{"its own processes", 1001, "alice", []system.ProcessStatus{uid(1001), uid(1001)}, false},
		{"root among them", 1001, "alice", []system.ProcessStatus{uid(1001), uid(0)}, false},
		{"owners that is unknown", 1001, "alice", []system.ProcessStatus{unseen}, false},
		{"a name that is unknown", 1009, "zoe", []system.ProcessStatus{uid(1009)}, false},
		{"no name in the files", 1001, "", []system.ProcessStatus{uid(1001)}, false},
		{"root's own", 0, "root", []system.ProcessStatus{uid(0)}, false},
		{"another user's", 1001, "alice", []system.ProcessStatus{uid(1002)}, true},
		{"another user's among its own", 1001, "alice", []system.ProcessStatus{uid(1001), uid(1002)}, true},
		{"root's alone", 1001, "alice", []system.ProcessStatus{uid(0)}, true},
		{"another name", 1001, "bob", []system.ProcessStatus{uid(1001)}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			machine := &fakeSystem{processes: map[snapshot.PID]system.ProcessStatus{}}
			store := disk.New(sharedDir(t), disk.Config{System: machine, Username: names})
			require.NoError(t, store.Update(t.Context(), func(b *state.Files) error {
				for i, p := range tt.processes {
					pid := snapshot.PID(i + 1)
					machine.processes[pid] = p
					if err := b.Activate(state.Activation{EID: "e", UID: 0, PID: pid, Username: tt.username, At: at("12:00:00")}); err != nil {
						return err
					}
				}
				b.Environment("e").UID = tt.uid
				return nil
			}))
			files, err := store.ReadRaw(t.Context()) // Read ends what has none of its own
			require.ErrorIs(t, err, state.ErrNoDevices)
			require.Equal(t, tt.mismatch, files.Environment("e").OwnerMismatch)
			want := tt.username
			if tt.uid == 1001 {
				want = "alice" // whatever is written there: this is the name for which caps count
			}
			require.Equal(t, want, files.Environment("e").Username)
		})
	}
}
