package proc_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/proc"
)

func TestHasEnded(t *testing.T) {
	cmd := exec.Command("/bin/sleep", "1000000")
	require.NoError(t, cmd.Start())
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	require.NoError(t, err)
	ended, err := proc.HasEnded(pidfd)
	require.NoError(t, err)
	require.False(t, ended)

	require.NoError(t, cmd.Process.Kill())
	require.Eventually(t, func() bool {
		ended, err := proc.HasEnded(pidfd)
		return ended && err == nil
	}, 10*time.Second, time.Millisecond, "also before it is waited for")
	require.Error(t, cmd.Wait())
	ended, err = proc.HasEnded(pidfd)
	require.NoError(t, err)
	require.True(t, ended)

	require.NoError(t, unix.Close(pidfd))
	closed, err := os.Open("/dev/null")
	require.NoError(t, err)
	number := int(closed.Fd())
	require.NoError(t, closed.Close())
	_, err = proc.HasEnded(number)
	require.Error(t, err, "it is no descriptor any more")
}
