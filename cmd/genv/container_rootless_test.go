package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet/dockerd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/record"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

const rootlessUser, rootlessSubuids = 4002, 300000

// newRootlessHost is a host on which root owns the state, and on which a user has a Docker of
// the user's own, with genv's runtime.
func newRootlessHost(t *testing.T) *runtimeHost {
	dockerd.RequireRootless(t)
	h := newGPUHost(t)
	h.serve()
	config := filepath.Join(h.dir, "daemon.json")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `{"runtimes": {"genv": {"path": %q, "runtimeArgs": ["container-runtime", "--"]}}, "default-runtime": "genv"}`, h.binary), 0o644))
	h.Daemon = dockerd.StartRootless(t, rootlessUser, rootlessSubuids, "--config-file", config)
	return h
}

// TestContainersOfARootlessDocker: they get devices from root's service, for the user who
// runs that Docker, under the lock and the bounds of `genv attach`, and give them back.
func TestContainersOfARootlessDocker(t *testing.T) {
	h := newRootlessHost(t)
	plain := h.Docker("run", "--rm", "--network", "none", dockerd.Image, "env")
	require.NotContains(t, plain, "GENV_", "it asks for no GPU")

	// An environment of its user, also of processes with a subordinate uid.
	id := h.Run("--name", "own", "--user", "7", "-e", "GENV_GPUS=2", "-e", "GENV_GPU_MEMORY=4g", dockerd.Image, "sh", "-c", "env; sleep 1000000")
	own := h.files().Environments
	require.Len(t, own, 1)
	require.EqualValues(t, id[:12], own[0].EID)
	require.EqualValues(t, rootlessUser, own[0].UID)
	require.False(t, own[0].OwnerMismatch)
	init := h.Init("own")
	require.Equal(t, []snapshot.PID{init}, own[0].PIDs)
	uid, err := proc.FS{}.UID(init)
	require.NoError(t, err)
	require.EqualValues(t, rootlessSubuids+6, uid)
	r, err := record.Read(filepath.Join(h.dir, "root/run"), record.OfUser(rootlessUser, id))
	require.NoError(t, err)
	require.Equal(t, record.Rootless, r.Proof)
	require.EqualValues(t, rootlessUser, *r.UID)
	require.Equal(t, init, r.PID)
	require.Eventually(t, func() bool { return strings.Contains(h.Docker("logs", "own"), "HOME=") }, time.Minute, 20*time.Millisecond)
	text := h.Docker("logs", "own")
	for _, line := range []string{"GENV_ENVIRONMENT_ID=" + id[:12], "NVIDIA_VISIBLE_DEVICES=GPU-00,GPU-10", "CUDA_VISIBLE_DEVICES=GPU-00,GPU-10"} {
		require.Contains(t, text, line)
	}

	// Not more than there is, and nothing of another user's environment.
	h.refused("Requested more devices (3) than currently available (2)", "-e", "GENV_GPUS=3", dockerd.Image, "env")
	theirs := h.environmentOf(containerUser, "theirs", 2)
	claimed := h.Docker("run", "--rm", "--network", "none", "-e", "GENV_ENVIRONMENT_ID=theirs", "-e", "GENV_GPUS=1", dockerd.Image, "env")
	require.Contains(t, claimed, "NVIDIA_VISIBLE_DEVICES=GPU-30", "it is not of that environment")
	require.NotContains(t, claimed, "GENV_ENVIRONMENT_ID=theirs")
	for _, option := range []string{"GENV_MOUNT_SHIMS=1", "GENV_MOUNT_LOCKS=1"} {
		h.refused("don't work in containers of rootless engines", "-e", option, "-e", "GENV_GPUS=1", dockerd.Image, "env")
	}
	h.refused("no such file", "-e", "GENV_GPUS=1", dockerd.Image, "/missing")
	require.Len(t, h.files().Environments, 2, "what couldn't be started has nothing")

	// It is given back at the end, and attached again at the next start.
	h.Docker("restart", "--time", "0", "own")
	files := h.files()
	again := files.Environment(own[0].EID)
	require.NotNil(t, again)
	require.Equal(t, []snapshot.PID{h.Init("own")}, again.PIDs)
	h.Docker("kill", "own")
	gone := func() bool { files := h.files(); return files.Environment(own[0].EID) == nil }
	require.Eventually(t, gone, time.Minute, 20*time.Millisecond)
	_, err = record.Read(filepath.Join(h.dir, "root/run"), record.OfUser(rootlessUser, id))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, syscall.Kill(int(theirs), syscall.SIGKILL))
	h.free("docker kill")

	h.killedRootless()
}

// environmentOf is a process of a user with an environment on a device.
func (h *runtimeHost) environmentOf(uid uint32, eid string, device int) snapshot.PID {
	h.t.Helper()
	cmd := exec.Command("sleep", "1000000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
	require.NoError(h.t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	h.t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	out, ok := h.does(uid, "envs", "activate", "--eid", eid, "--pid", fmt.Sprint(cmd.Process.Pid))
	require.True(h.t, ok, out)
	attach := h.as(uid, "attach", "--index", fmt.Sprint(device))
	attach.Env = append(attach.Env, "GENV_ENVIRONMENT_ID="+eid)
	text, err := attach.CombinedOutput()
	require.NoError(h.t, err, "%s", text)
	return snapshot.PID(cmd.Process.Pid) //nolint:gosec // the kernel's PIDs fit
}

// killedRootless: after SIGKILL of all that could call a hook, everything is given back, and
// nothing while the container runs.
func (h *runtimeHost) killedRootless() {
	h.t.Helper()
	h.Run("--name", "survivor", "-e", "GENV_GPUS=all", dockerd.Image, "sleep", "1000000")
	survivor := h.Init("survivor")
	for _, name := range []string{"dockerd", "containerd", "containerd-shim", "rootlesskit"} {
		h.kill(name) // some end with the others
	}
	if stat, err := (proc.FS{}).Stat(survivor); err == nil && !stat.Gone() {
		require.Len(h.t, h.files().Environments, 1, "it runs")
		require.NoError(h.t, syscall.Kill(int(survivor), syscall.SIGKILL))
	}
	h.free("SIGKILL of the engine, and of the container")
}
