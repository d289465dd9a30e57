package disk_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// busyFolder is a state folder with as many environments of this process as
// asked for, and eight devices.
func busyFolder(b *testing.B, environments int) string {
	b.Helper()
	dir := filepath.Join(b.TempDir(), "genv")
	store := disk.New(dir, disk.Config{})
	_, err := store.RegisterDevices(b.Context(), gpus(8))
	require.NoError(b, err)
	require.NoError(b, store.Update(b.Context(), func(files *state.Files) error {
		for i := range environments {
			files.Environments = append(files.Environments, snapshot.Environment{
				EID: snapshot.EnvID(rune('a'+i%26)) + snapshot.EnvID(rune('0'+i/26)), UID: snapshot.UID(os.Getuid()),
				Creation: at("12:00:00"), PIDs: []snapshot.PID{snapshot.PID(os.Getpid())},
			})
		}
		return nil
	}))
	return dir
}

func BenchmarkRead(b *testing.B) {
	store := disk.New(busyFolder(b, 20), benchOptions(b))
	for b.Loop() {
		_, err := store.Read(b.Context())
		require.NoError(b, err)
	}
}

func BenchmarkCachedRead(b *testing.B) {
	options := benchOptions(b)
	options.Now = func() time.Time { return time.Now().Add(time.Hour) } // the files are old
	cache := disk.NewCache(disk.New(busyFolder(b, 20), options))
	for b.Loop() {
		_, err := cache.Read(b.Context())
		require.NoError(b, err)
	}
}

func BenchmarkUpdate(b *testing.B) {
	store, n := disk.New(busyFolder(b, 20), benchOptions(b)), 0
	for b.Loop() {
		n++
		require.NoError(b, store.Update(b.Context(), func(files *state.Files) error {
			files.Environments[0].Config.GPUs = &n
			return nil
		}))
	}
}

// benchOptions are those of root's genv, which keeps notes and a copy.
func benchOptions(b *testing.B) disk.Config {
	b.Helper()
	root := filepath.Join(b.TempDir(), "root")
	require.NoError(b, os.Mkdir(root, 0o755))
	return disk.Config{RootDir: root}
}
