package sshclient

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStamps: a refused login is worth another try when there is a master, and not when
// somebody else touches its path.
func TestStamps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cm")
	none := stampOf(path)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NotEqual(t, none, stampOf(path))
	if os.Geteuid() != 0 {
		require.NotEqual(t, "true", os.Getenv("CI"), "this test has to run as root")
		t.Skip("only root can make a file of another user")
	}
	require.NoError(t, os.Chown(path, 65534, 65534))
	require.Equal(t, none, stampOf(path))
}
