package localhost

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHardware(t *testing.T) {
	root := t.TempDir()
	getenv := func(key string) string { return map[string]string{"GENV_ROOT_DIR": root}[key] }
	source := Hardware(getenv)
	require.Equal(t, filepath.Join(root, "run"), source.Run)
	require.Equal(t, "/proc", source.Proc, "only the notes of root are elsewhere")
	require.Equal(t, os.Geteuid() == 0, source.Root)
	require.NoError(t, os.MkdirAll(filepath.Join(root, "proc/driver/nvidia/gpus"), 0o755))
	require.Equal(t, filepath.Join(root, "proc"), Hardware(getenv).Proc)

	here := Hardware(func(string) string { return "" })
	require.Equal(t, "/run/genv", here.Run)
	require.Equal(t, "/proc", here.Proc)
}
