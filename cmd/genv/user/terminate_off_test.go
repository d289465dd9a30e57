package user_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestAHostMaySpareProcesses: with GENV_TERMINATE_PROCESSES=0 a report detaches,
// and sends no signal; what was not done is reported.
func TestAHostMaySpareProcesses(t *testing.T) {
	s := newStation(t)
	shell := s.me().open("bash")
	require.Equal(t, said{}, shell.say("genv activate --gpus 1 --name x"))
	pid := startSleeper(t, s.me().uid)
	s.uses(map[snapshot.PID]int{pid: 5})
	env, err := snapshot.DecodeEnvironments([]byte(s.stateFiles()["envs.json"]))
	require.NoError(t, err)
	document, err := snapshot.EncodeEnvironments(env)
	require.NoError(t, err)
	report := fmt.Sprintf(`{"terminate": {"processes": [{"pid": %d, "used_gpu_memory": [{"index": 5, "gpu_memory": "1000mi"}], "eid": null}]}, "detach": {"0": %s}}`, pid, document)
	execute := func(u *account) genvtest.Result {
		cmd := u.command("genv", "usage", "execute")
		cmd.Stdin = strings.NewReader(report)
		return genvtest.Exec(t, cmd)
	}

	spared := execute(s.me().with("GENV_TERMINATE_PROCESSES=0", "GENV_AUDIT_LOG=off"))
	require.Zero(t, spared.Code)
	require.Equal(t, fmt.Sprintf("process %d: refused: GENV_TERMINATE_PROCESSES=0 on this host\n", pid), spared.Err)
	require.True(t, strings.HasPrefix(spared.Out, "Detaching environment "+shell.pid()+" ") && strings.Count(spared.Out, "\n") == 1, spared.Out)
	local := s.me().with("GENV_TERMINATE_PROCESSES=0", "GENV_AUDIT_LOG=off").run("genv", "enforce", "--interval", "0", "--non-env-processes")
	require.NotContains(t, local.Out, "Terminating")
	require.Equal(t, said{}, shell.say(fmt.Sprintf("kill -0 %d", pid)))

	done := execute(s.me().with("GENV_TERMINATE_PROCESSES=1", "GENV_AUDIT_LOG=off"))
	require.Equal(t, genvtest.Result{Out: fmt.Sprintf("Terminating process %d from environment N/A that is running on GPU(s) 5\n", pid)}, done)
}
