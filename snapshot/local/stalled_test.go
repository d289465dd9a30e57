package local_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// withReader has a helper read the processes.
func withReader(t *testing.T, machine *local.Collector) {
	machine.Proc = proc.FS{Reader: &proc.Reader{Command: []string{"/proc/self/exe", "read"}}}
	t.Cleanup(machine.Proc.Reader.Close)
}

// TestALookAtStalledProcesses: they are unknown, their user is known, and everybody else is judged.
func TestALookAtStalledProcesses(t *testing.T) {
	mapped, uid := proctest.Stall(t, false)
	inExec, _ := proctest.Stall(t, true)
	honest := sleeper(t, "GENV_ENVIRONMENT_ID=2020")
	machine, _ := realMachine(t, honest, mapped, inExec)
	withReader(t, machine)
	for range 2 {
		began := time.Now()
		s, err := machine.Snapshot(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(began), 2*time.Second)
		processes := map[snapshot.PID]snapshot.Process{}
		for _, p := range s.Processes {
			processes[p.PID] = p
		}
		require.Equal(t, snapshot.EnvID("2020"), processes[honest].EID)
		require.False(t, processes[honest].EnvUnknown)
		for _, pid := range []snapshot.PID{mapped, inExec} {
			p := processes[pid]
			require.True(t, p.EnvUnknown)
			require.Equal(t, &uid, p.UID)
		}
		require.NotZero(t, processes[mapped].Start)
		require.Equal(t, &snapshot.Unreadable{
			Why: fmt.Sprintf("its environment and memory map are stalled by a FUSE file system of uid %d", uid), ByUser: true,
		}, processes[mapped].Unreadable)
		require.NotNil(t, processes[inExec].Unreadable)
		require.False(t, processes[inExec].Unreadable.ByUser, "the kernel doesn't say")
		require.Nil(t, processes[honest].Unreadable)
		require.Contains(t, strings.Join(s.Warnings, "\n"), "does not answer")
	}
}

// TestManyProcessesWithLargeEnvironments: whatever one look leaves out, the next ones read; a user with a few
// processes doesn't wait for that.
func TestManyProcessesWithLargeEnvironments(t *testing.T) {
	proctest.NeedRoot(t)
	var large []snapshot.PID
	environ := []string{"GENV_ENVIRONMENT_ID=2020"}
	for i := range 15 {
		environ = append(environ, "V"+string(rune('A'+i))+"="+strings.Repeat("x", 100<<10))
	}
	for range 60 {
		large = append(large, sleeper(t, environ...))
	}
	machine, _ := realMachine(t, large...)
	withReader(t, machine)
	require.Eventually(t, func() bool {
		began := time.Now()
		s, err := machine.Snapshot(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(began), 3*time.Second)
		for i := range s.Processes {
			require.True(t, s.Processes[i].EnvUnknown || s.Processes[i].EID == "2020")
			require.Nil(t, s.Processes[i].Unreadable, "many are not unreadable")
		}
		return !slices.ContainsFunc(s.Processes, func(p snapshot.Process) bool { return p.EnvUnknown })
	}, time.Minute, time.Millisecond)
}
