package enforcement_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestAReportIsFinishedThoughNobodyListens: its reader is gone before the first
// line is written.
func TestAReportIsFinishedThoughNobodyListens(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	h := f.Host("gpu-01")
	env, err := h.Activate(testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0}})
	require.NoError(t, err)
	job, err := h.StartJob(testfleet.Job{User: "alice", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
	require.NoError(t, err)
	envs, err := snapshot.EncodeEnvironments([]snapshot.Environment{env.Environment})
	require.NoError(t, err)
	report := fmt.Sprintf(`{"terminate": {"processes": [{"pid": %d, "used_gpu_memory": [{"index": 0, "gpu_memory": "10mi"}], "eid": "%s"}]}, "detach": {"0": %s}}`,
		job.PID, env.EID, envs)
	session := exec.Command("ssh", "-F", f.SSHConfig(), "gpu-01", "sudo genv usage execute | true")
	session.Stdin = strings.NewReader(report)
	require.NoError(t, session.Run())
	select {
	case <-job.Ended():
	case <-time.After(30 * time.Second):
		require.Fail(t, "the device was detached, and its process goes on")
	}
}
