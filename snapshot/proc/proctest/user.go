package proctest

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

// ordinaryUID is in a range that no distribution assigns.
const ordinaryUID = 60701

// OrdinaryUser is a user who is not root, the test's own user if possible. It returns the
// path of the test's program that this user can run, and the attributes to start it as
// this user.
func OrdinaryUser(t *testing.T) (uid snapshot.UID, program string, attr *syscall.SysProcAttr) {
	exe, err := os.Executable()
	require.NoError(t, err)
	attr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		return snapshot.UID(os.Getuid()), exe, attr
	}
	dir, err := os.MkdirTemp("", "genv-program-") // t.TempDir is below a folder that others may not enter
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	data, err := os.ReadFile(exe)
	require.NoError(t, err)
	program = filepath.Join(dir, filepath.Base(exe))
	require.NoError(t, os.WriteFile(program, data, 0o600))
	require.NoError(t, os.Chmod(program, 0o755))
	attr.Credential = &syscall.Credential{Uid: ordinaryUID, Gid: ordinaryUID}
	return ordinaryUID, program, attr
}
