package host_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet/dockerd"
	"github.com/seed-3119e985/genv/snapshot"
)

const rootlessUser, rootlessSubuids = 4002, 300000

// newRootlessHost is a host on which root owns the state, and on which a user has a Docker of
// the user's own, that knows genv's runtime.
func newRootlessHost(t *testing.T) *runtimeHost {
	dockerd.RequireRootless(t)
	h := newGPUHost(t)
	h.serve()
	config := filepath.Join(h.dir, "daemon.json")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `{"runtimes": {"genv": {"path": %q, "runtimeArgs": ["container-runtime", "--"]}}}`, h.binary), 0o644))
	h.Daemon = dockerd.StartRootless(t, rootlessUser, rootlessSubuids, "--config-file", config)
	return h
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

// getNothing: genv's runtime starts a container of a rootless engine only if it asks for no GPU.
func (h *runtimeHost) getNothing() {
	h.t.Helper()
	require.NotContains(h.t, h.Docker("run", "--rm", "--network", "none", "--runtime", "genv", dockerd.Image, "env"), "GENV_")
	h.refused("doesn't give GPUs to containers of rootless engines", "--runtime", "genv", "-e", "GENV_GPUS=1", dockerd.Image, "env")
	require.Empty(h.t, h.files().Environments)
}
