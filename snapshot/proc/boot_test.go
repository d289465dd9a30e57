package proc_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc"
)

func TestBootID(t *testing.T) {
	fs := mount(t)
	dir := filepath.Join(fs.Root, "sys/kernel/random")
	_, err := fs.BootID()
	require.ErrorIs(t, err, os.ErrNotExist)

	require.NoError(t, os.MkdirAll(dir, 0o755))
	write := func(content string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "boot_id"), []byte(content), 0o644))
	}
	write("6f1f5d0b-8f7c-4d83-9d0e-3a4f1c0c2b11\n")
	id, err := fs.BootID()
	require.NoError(t, err)
	require.Equal(t, "6f1f5d0b-8f7c-4d83-9d0e-3a4f1c0c2b11", id)
	for _, bad := range []string{"", "rubbish\n", "6f1f5d0b-8f7c-4d83-9d0e-3a4f1c0c2bzz", "6f1f5d0b08f7c04d8309d0e03a4f1c0c2b11", "6f1f5d0b-8f7c-4d83-9d0e-3a4f1c0c2b11 more"} {
		write(bad)
		_, err = fs.BootID()
		require.Error(t, err, bad)
	}

	id, err = proc.FS{}.BootID()
	require.NoError(t, err)
	require.NotEmpty(t, id)
}
