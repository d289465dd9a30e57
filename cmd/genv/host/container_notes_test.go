package host_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet/dockerd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
)

// TestNotesOfRemovedContainers: root's service forgets for whom a container was started when
// Docker doesn't know it any more, and keeps that of one that is stopped.
func TestNotesOfRemovedContainers(t *testing.T) {
	h := newRuntimeHost(t)
	for _, name := range []string{"stopped", "removed"} {
		out, ok := h.person(h.binary, "docker", "run", "-d", "--network", "none", "--name", name, "--gpus", "1", dockerd.Image, "sleep", "1000000")
		require.True(t, ok, out)
	}
	folder := filepath.Join(h.dir, "root/container-users")
	notes := func() (ids []string) {
		found, err := filepath.Glob(folder + "/*.json")
		require.NoError(t, err)
		for _, path := range found {
			ids = append(ids, strings.TrimSuffix(filepath.Base(path), ".json"))
		}
		return ids
	}
	stopped := h.Docker("inspect", "--format", "{{.Id}}", "stopped")
	require.Len(t, notes(), 2)
	h.Docker("stop", "--time", "0", "stopped")
	h.Docker("rm", "--force", "removed")
	h.free("docker rm")

	last := grant.RestartNote{ID: strings.Repeat("f", 64), UID: containerUser, Runtime: "docker"} // the service looks at it after the others
	require.NoError(t, grant.RestartNotes{Dir: filepath.Join(h.dir, "root"), Now: time.Now}.Write(last, "never"))
	pid := h.servicePID()
	require.Positive(t, pid)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Eventually(t, func() bool { return !h.lives(snapshot.PID(pid)) }, time.Minute, time.Millisecond)
	serve := h.Command(h.binary, "host", "serve") // where Docker's socket is
	serve.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, serve.Start())
	t.Cleanup(func() { _ = serve.Process.Kill(); _ = serve.Wait() })
	require.Eventually(t, func() bool { return len(notes()) < 2 }, time.Minute, 20*time.Millisecond)
	require.Equal(t, []string{stopped}, notes())
}
