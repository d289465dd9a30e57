package disk_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

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
			require.ErrorIs(t, err, disk.ErrCorrupt)
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
func impatient(t *testing.T, dir string) (*disk.Store, context.Context) {
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
