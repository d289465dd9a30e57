package localhost

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDriverDevices(t *testing.T) {
	proc := t.TempDir()
	require.Zero(t, driverDevices(proc), "no driver")
	for _, address := range []string{"0000:01:00.0", "0000:02:00.0"} {
		require.NoError(t, os.MkdirAll(filepath.Join(proc, "driver/nvidia/gpus", address), 0o755))
	}
	require.Equal(t, 2, driverDevices(proc))
}
