package sshd_test

import (
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
)

const (
	waitFor = 10 * time.Second
	tick    = 5 * time.Millisecond
)

func startJob(t *testing.T, h *sshd.Host, job testfleet.Job) *testfleet.Process {
	t.Helper()
	p, err := h.StartJob(job)
	require.NoError(t, err)
	return p
}

func TestAJobIsARealProcessOfItsUser(t *testing.T) {
	fleet := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01", "gpu-02")})
	job := startJob(t, fleet.Host("gpu-01"), testfleet.Job{
		User: "bob", Env: []string{"GENV_ENVIRONMENT_ID=17"},
		Uses: []testfleet.Use{{Device: 2, MiB: 1000}, {Device: 3, MiB: -1}},
	})
	pid := strconv.Itoa(int(job.PID))

	out, _ := ssh(fleet, "gpu-01", "stat -c %U /proc/"+pid+"; sudo -n cat /proc/"+pid+"/environ")
	require.Regexp(t, "^bob\nUSER=bob\x00.*\x00GENV_ENVIRONMENT_ID=17\x00$", out)
	out, _ = ssh(fleet, "gpu-01", "nvidia-smi --query-compute-apps=pid,used_memory --format=csv,noheader")
	require.Equal(t, pid+", 1000 MiB\n"+pid+", [N/A]\n", out)
	out, _ = ssh(fleet, "gpu-02", "nvidia-smi --query-compute-apps=pid --format=csv,noheader")
	require.Empty(t, out, "another host does not see it")

	out, code := ssh(fleet, "gpu-01", "kill "+pid)
	require.NotZero(t, code, "the operator may not, without sudo: %s", out)
	require.True(t, job.Running())
	out, code = ssh(fleet, "gpu-01", "sudo -n kill "+pid)
	require.Zero(t, code, out)
	<-job.Ended()
	require.Equal(t, syscall.SIGTERM, job.EndedBy())
}

func TestAJobMayIgnoreTerm(t *testing.T) {
	fleet := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01")})
	job := startJob(t, fleet.Host("gpu-01"), testfleet.Job{User: "alice", IgnoreTerm: true})
	pid := strconv.Itoa(int(job.PID))
	out, code := ssh(fleet, "gpu-01", "sudo -n kill "+pid+" && sudo -n kill -0 "+pid)
	require.Zero(t, code, out)
	require.True(t, job.Running())
	require.Zero(t, job.EndedBy())
	job.Kill()
	require.Equal(t, syscall.SIGKILL, job.EndedBy())
}

func TestABareJobHasNoEnvironment(t *testing.T) {
	fleet := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01")})
	job := startJob(t, fleet.Host("gpu-01"), testfleet.Job{User: "alice", Bare: true})
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(int(job.PID)) + "/environ")
	require.NoError(t, err)
	require.Empty(t, environ)
}

func TestAnEnvironmentBelongsToItsUser(t *testing.T) {
	fleet := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "gpu-01", GPUs: 2}}})
	h := fleet.Host("gpu-01")
	env, err := h.Activate(testfleet.Environment{User: "carol", Devices: []snapshot.DeviceIndex{1}})
	require.NoError(t, err)
	carol, err := sshd.UID("carol")
	require.NoError(t, err)
	require.Equal(t, carol, env.UID)
	out, _ := ssh(fleet, "gpu-01", "stat -c %U /proc/"+string(env.EID))
	require.Equal(t, "carol\n", out)
	require.Error(t, h.Attach(env, 2, time.Now()), "there is no third device")
}
