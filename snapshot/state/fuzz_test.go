package state_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// FuzzFiles lets any two files be the state. If they are read at all, whatever
// is done to the state files can be written and read again, and no device is given
// away twice.
func FuzzFiles(f *testing.F) {
	envs, err := os.ReadFile(filepath.Join(recorded, "envs.json"))
	require.NoError(f, err)
	devices, err := os.ReadFile(filepath.Join(recorded, "devices.json"))
	require.NoError(f, err)
	f.Add(envs, devices, "9", 2, 0, "4g", int32(77))
	f.Add([]byte(`{"envs": [`+one+`]}`), []byte(`{"devices": []}`), "1", 0, 3, "", int32(1))
	f.Add([]byte(`{"envs": []}`), []byte(`{"devices": [{"index": 1, "total_memory": "1g", "attachments": []}]}`), "\x00", -1, -1, "1gi", int32(-5))
	f.Add([]byte(``), []byte(`{"devices": null}`), "", 0, 0, "x", int32(0))
	f.Fuzz(func(t *testing.T, envs, devices []byte, eid string, count, index int, memory string, pid int32) {
		files, ok := decodeFiles(envs, devices)
		if !ok {
			return
		}
		capacity, _ := snapshot.ParseMemory(memory) // what is no memory asks for whole devices
		request := state.AttachRequest{EID: snapshot.EnvID(eid), Memory: capacity, At: at("12:00:00")}
		if request.Count = count; count == 0 {
			request.Indices = indices{snapshot.DeviceIndex(index)}
		}
		fits := exclusive(&files) == nil
		_ = files.Activate(state.Activation{EID: request.EID, PID: snapshot.PID(pid), At: request.At})
		got, err := files.Attach(request)
		if err == nil {
			require.Equal(t, got, files.AttachedTo(request.EID))
			require.GreaterOrEqual(t, len(got), request.Count)
		}
		if fits {
			require.NoError(t, exclusive(&files))
		}
		again(t, &files)
		files.MergeDevices(gpus(2))
		files.Deactivate(snapshot.PID(pid))
		files.Detach(request.EID)
		require.Empty(t, files.AttachedTo(request.EID))
		again(t, &files)
	})
}

func decodeFiles(envs, devices []byte) (files state.Files, ok bool) {
	var err error
	if files.Environments, err = snapshot.DecodeEnvironments(envs); err != nil {
		return files, false
	}
	files.Devices, err = snapshot.DecodeDevices(devices)
	return files, err == nil
}

// again writes the state files and reads them back.
func again(t *testing.T, files *state.Files) {
	t.Helper()
	envs, err := snapshot.EncodeEnvironments(files.Environments)
	require.NoError(t, err)
	devices, err := snapshot.EncodeDevices(files.Devices)
	require.NoError(t, err)
	_, ok := decodeFiles(envs, devices)
	require.True(t, ok, "%s\n%s", envs, devices)
}

// FuzzStateFiles lets a folder hold any two files: they are read, or they are
// refused and left as they are.
func FuzzStateFiles(f *testing.F) {
	envs, err := os.ReadFile(filepath.Join(recorded, "envs.json"))
	require.NoError(f, err)
	f.Add(envs, []byte(`{"boot_id": "x", "start_times": {"25936": 1}}`))
	f.Add([]byte(`{"envs": [`), []byte(`{`))
	shortenQuickly(f)
	f.Fuzz(func(t *testing.T, envs, identities []byte) {
		dir := memoryDir(t)
		put(t, dir, "envs.json", string(envs))
		put(t, dir, "devices.json", `{"devices": []}`)
		put(t, dir, "genv.identities.json", string(identities))
		store, ctx := impatient(t, dir)
		_, err := store.ReadRaw(ctx)
		if err != nil {
			require.ErrorIs(t, err, state.ErrCorrupt)
		}
		store, ctx = impatient(t, dir)
		_, again := store.Read(ctx)
		require.Equal(t, err == nil, again == nil)
		if err != nil {
			require.Equal(t, string(envs), readFile(t, filepath.Join(dir, "envs.json")))
		}
	})
}

// memoryDir is a folder in memory where the machine has one: on a disk a case
// would spend its time waiting for fsync.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "genv-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// shortenQuickly has Go try little to shorten each new input, unless the command
// line says how much: by default it takes up to a minute, in which no case counts.
func shortenQuickly(f *testing.F) {
	f.Helper()
	const name = "test.fuzzminimizetime"
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if !given {
		require.NoError(f, flag.Set(name, "10x"))
	}
}

// impatient is a Store, and a context to use it with, that reads a corrupt file
// once: it would pause 40 ms between its attempts, and most cases are corrupt.
func impatient(t *testing.T, dir string) (*state.Store, context.Context) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	store := everyoneLives(dir)
	store.OnStep(func(step string) {
		if strings.HasPrefix(step, "unreadable ") {
			cancel()
		}
	})
	return store, ctx
}

func FuzzLockOwner(f *testing.F) {
	f.Add("1: FLOCK  ADVISORY  WRITE 1234 fe:00:131 0 EOF\n")
	f.Add("1: -> FLOCK  ADVISORY  WRITE 1234 fe:00:131 0 EOF\n")
	f.Fuzz(func(t *testing.T, locks string) {
		if pid := state.LockOwner(locks, 1, 131); pid != 0 {
			require.Contains(t, locks, "FLOCK")
			require.Contains(t, locks, strconv.Itoa(max(pid, -pid)))
		}
	})
}
