package proc_test

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// TestStartTimeNow: a process that starts between two looks has a start time between theirs.
func TestStartTimeNow(t *testing.T) {
	before := proc.StartTimeNow()
	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	after := proc.StartTimeNow()
	stat, err := proc.FS{}.Stat(snapshot.PID(cmd.Process.Pid))
	require.NoError(t, err)
	require.GreaterOrEqual(t, stat.Start, before)
	require.LessOrEqual(t, stat.Start, after)
	since, err := proc.SinceBoot()
	require.NoError(t, err)
	require.Greater(t, since, time.Duration(after-1)*10*time.Millisecond)
}
