package sshd_test

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
)

const (
	waitFor = 10 * time.Second
	tick    = 5 * time.Millisecond
)

func startJob(t *testing.T, h *sshd.Host, job sshd.Job) *sshd.Process {
	t.Helper()
	p, err := h.StartJob(job)
	require.NoError(t, err)
	return p
}

func TestAJobIsARealProcessOfItsUser(t *testing.T) {
	fleet := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01", "gpu-02")})
	job := startJob(t, fleet.Host("gpu-01"), sshd.Job{
		User: "bob", Env: []string{"GENV_ENVIRONMENT_ID=17"},
		Uses: []sshd.Use{{Device: 2, MiB: 1000}, {Device: 3, MiB: -1}},
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
	job := startJob(t, fleet.Host("gpu-01"), sshd.Job{User: "alice", IgnoreTerm: true})
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
	job := startJob(t, fleet.Host("gpu-01"), sshd.Job{User: "alice", Bare: true})
	environ, err := os.ReadFile("/proc/" + strconv.Itoa(int(job.PID)) + "/environ")
	require.NoError(t, err)
	require.Empty(t, environ)
}

func TestActivateWritesStateAsGenvDoes(t *testing.T) {
	fleet := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "gpu-01", GPUs: 2}}})
	h := fleet.Host("gpu-01")
	at := time.Date(2026, 11, 20, 21, 10, 33, 0, time.Local)
	env, err := h.Activate(sshd.Environment{
		User: "carol", Config: snapshot.EnvConfig{Name: "training", GPUMemory: snapshot.MustMemory("4g")},
		Devices: []snapshot.DeviceIndex{1}, At: at,
	})
	require.NoError(t, err)
	require.True(t, env.Shell.Running())
	require.Equal(t, "GENV_ENVIRONMENT_ID="+strconv.Itoa(int(env.Shell.PID)), env.Var())

	envs, err := h.Environments()
	require.NoError(t, err)
	require.Len(t, envs, 1)
	require.Equal(t, snapshot.Username("carol"), envs[0].Username)
	require.Equal(t, []snapshot.PID{env.Shell.PID}, envs[0].PIDs)

	devices, err := h.Devices()
	require.NoError(t, err)
	require.Len(t, devices, 2)
	require.Empty(t, devices[0].Attachments)
	require.Equal(t, []snapshot.Attachment{
		{EID: env.EID, GPUMemory: snapshot.MustMemory("4g"), Time: snapshot.DateOf(at)},
	}, devices[1].Attachments)
	require.Error(t, h.Attach(env, 2, at), "there is no third device")

	for _, name := range []string{"envs.json", "devices.json", "genv.lock"} {
		info, err := os.Stat(filepath.Join(h.State, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o666), info.Mode().Perm(), name)
	}
}
