package statedir_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/statedir"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// A controller whose disk somebody has filled starts again, and keeps its memory.
func TestAFullDisk(t *testing.T) {
	proctest.NeedRoot(t)
	dir := t.TempDir()
	require.NoError(t, unix.Mount("none", dir, "tmpfs", 0, "size=512k,mode=0700"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	run := func(memory string) (epoch uint64) {
		s, err := statedir.Open(dir)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		_, err = s.ID()
		require.NoError(t, err)
		epoch, err = s.NextEpoch()
		require.NoError(t, err)
		require.NoError(t, s.Save(t.Context(), controller.Saved{Memory: []byte(memory)}))
		return epoch
	}
	require.Equal(t, uint64(1), run(`"first"`))
	require.Error(t, os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600))
	require.Equal(t, uint64(2), run(`"second"`))
	require.Equal(t, uint64(3), run(`"third"`))
	data, err := os.ReadFile(filepath.Join(dir, "memory.json"))
	require.NoError(t, err)
	require.Equal(t, `"third"`, string(data))
}
