package enforcement_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Of two hosts with an old and a young process, one is for interactive work.
func TestOldProcessesEndWhereALabelSaysSo(t *testing.T) {
	host := func() *genvhost.Host {
		since, err := proc.SinceBoot() // of this machine, which is the hosts'
		require.NoError(t, err)
		state := outsiders(2)
		state.Processes[1].Start = snapshot.StartTime(since / (10 * time.Millisecond))
		return genvhost.New(state)
	}
	interactive, batch := host(), host()
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: interactive}, &inprocess.Server{Name: "b", Handler: batch})
	dir := t.TempDir()
	hosts, policy, log := filepath.Join(dir, "hosts.yaml"), filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.jsonl")
	require.NoError(t, os.WriteFile(hosts, []byte("hosts: [{name: a, labels: {use: interactive}}, b]\n"), 0o600))
	require.NoError(t, os.WriteFile(policy, []byte("overrides: [{labels: {use: interactive}, set: {max-process-age: 1m, warn: {cycles: 1}}}]\n"), 0o600))
	r := genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", hosts, "--interval", "100ms", "--cycles", "3", "--policy", policy, "--audit-log", log)
	require.Zero(t, r.Code, r.Err)
	require.Regexp(t, `\[a\] Process 1000 has been running for .*, and 1m are allowed \(waits`, r.Out)
	require.Empty(t, batch.Actions())
	actions := interactive.Actions()
	require.Len(t, actions, 1)
	require.Equal(t, snapshot.PID(1000), actions[0].Outcome.PID)
	require.Equal(t, order.StatusTerminated, actions[0].Outcome.Status)
	history := genvtest.Run(t, "remote", "history", "--audit-log", log, "--rule", "max-process-age")
	require.Contains(t, history.Out, "1000")
	explained := genvtest.Run(t, "policy", "explain", "--policy", policy, "--inventory", hosts, "--host", "a")
	require.Regexp(t, `max-process-age +1m +override for labels use=interactive`, explained.Out, explained.Err)
}
