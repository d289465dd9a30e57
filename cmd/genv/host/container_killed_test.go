package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet/dockerd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// TestKilledPartsOfDocker: SIGKILL of any part of the engine, and of genv's runtime, gives
// nothing back that a container uses, and what no container uses is given back.
func TestKilledPartsOfDocker(t *testing.T) {
	h := newRuntimeHost(t)

	// The runtime, when it has attached devices and the container isn't created.
	bundle, runc := filepath.Join(h.dir, "bundle"), filepath.Join(h.dir, "runc")
	require.NoError(t, os.Mkdir(bundle, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(bundle, "config.json"), []byte(`{"ociVersion": "1.0.2", "process": {"env": ["GENV_GPUS=2"]}}`), 0o600))
	require.NoError(t, os.WriteFile(runc, []byte("#!/bin/sh\nexec sleep 1000000\n"), 0o755))
	creating := h.as(0, "container-runtime", "--real", runc, "--", "create", "--bundle", bundle, strings.Repeat("ab", 32))
	require.NoError(t, creating.Start())
	t.Cleanup(func() { _ = creating.Process.Kill(); _ = creating.Wait() })
	require.Eventually(t, func() bool { return len(h.files().Environments) == 1 }, time.Minute, 20*time.Millisecond)
	require.NoError(t, creating.Process.Kill())
	_ = creating.Wait()
	h.free("SIGKILL of the runtime")

	// The hook at the end: what it doesn't give back is given back all the same.
	h.Run("--name", "unhooked", "-e", "GENV_GPUS=1", dockerd.Image, "sleep", "1000000")
	require.NoError(t, os.Rename(h.binary, h.binary+".away"))
	require.NoError(t, os.WriteFile(h.binary, []byte("#!/bin/sh\ncase $1 in container-hook) kill -9 $$;; *) exec "+h.binary+".away \"$@\";; esac\n"), 0o755))
	h.Docker("kill", "unhooked")
	h.free("SIGKILL of the hook")
	require.NoError(t, os.Rename(h.binary+".away", h.binary))

	h.killedAtTheStart()
	h.killedEngine()
}

// killedAtTheStart: a hook at the start that gets SIGKILL, before or after it has told of the
// container's init, keeps the container from starting, and it has nothing.
func (h *runtimeHost) killedAtTheStart() {
	h.t.Helper()
	killer, runc, config := filepath.Join(h.dir, "killer"), filepath.Join(h.dir, "hooked-runc"), filepath.Join(h.dir, "daemon.json")
	started := filepath.Join(h.dir, "hook-started")
	require.NoError(h.t, os.WriteFile(runc, fmt.Appendf(nil, `#!/bin/sh
for word; do [ "$before" != --bundle ] || bundle=$word; before=$word; done
[ -z "$bundle" ] || sed -i 's|"path":"%s","args":\["genv","container-hook","start"|"path":"%s","args":["genv","container-hook","start"|' "$bundle/config.json"
exec runc "$@"
`, h.binary, killer), 0o755))
	known, err := os.ReadFile(config)
	require.NoError(h.t, err)
	runtimes := fmt.Sprintf(`"runtimes": {"hooked": {"path": %q, "runtimeArgs": ["container-runtime", "--real=%s", "--"]},`, h.binary, runc)
	changed := strings.Replace(string(known), `"runtimes": {`, runtimes, 1)
	require.NotEqual(h.t, string(known), changed)
	require.NoError(h.t, os.WriteFile(config, []byte(changed), 0o644))
	h.Signal(syscall.SIGHUP)
	require.Eventually(h.t, func() bool { return strings.Contains(h.Docker("info", "--format", "{{json .Runtimes}}"), "hooked") }, time.Minute, 50*time.Millisecond)
	for _, before := range []string{"", h.binary + ` "$@" || exit; `} {
		require.NoError(h.t, os.WriteFile(killer, []byte("#!/bin/sh\n"+before+"touch "+started+"; kill -9 $$\n"), 0o755))
		out, err := h.Command("docker", "run", "--rm", "--network", "none", "--runtime", "hooked", "-e", "GENV_GPUS=1", dockerd.Image, "env").CombinedOutput()
		require.Error(h.t, err, "%s", out)
		require.NotContains(h.t, string(out), "NVIDIA_VISIBLE_DEVICES", "the program was not started")
		require.NoError(h.t, os.Remove(started), "%s", out)
		h.free("SIGKILL of the hook at the start " + before)
	}
}

// killedEngine: after SIGKILL of what watches a container, and of the engine, it keeps what it
// has for as long as its first process runs.
func (h *runtimeHost) killedEngine() {
	h.t.Helper()
	h.Run("--name", "unwatched", "-e", "GENV_GPUS=1", dockerd.Image, "sleep", "1000000")
	init := h.Init("unwatched")
	require.Positive(h.t, h.kill("containerd-shim"))
	if h.lives(init) { // containerd ends it, as soon as it knows
		_ = syscall.Kill(int(init), syscall.SIGKILL)
	}
	h.free("SIGKILL of the shim, and of the container")

	h.Run("--name", "survivor", "-e", "GENV_GPUS=1", dockerd.Image, "sleep", "1000000")
	init = h.Init("survivor")
	for _, part := range []string{"containerd", "dockerd", "containerd-shim"} {
		require.Positive(h.t, h.kill(part), part)
		require.Eventually(h.t, func() bool { return part == "containerd" || h.kill(part) == 0 && h.kill("containerd") == 0 }, time.Minute, 20*time.Millisecond, "dockerd starts it again")
		require.True(h.t, h.lives(init), "SIGKILL of %s doesn't end the container", part)
		h.keeps(init, part)
	}
	require.NoError(h.t, syscall.Kill(int(init), syscall.SIGKILL))
	h.free("SIGKILL of the engine, and of the container")
}

func (h *runtimeHost) lives(pid snapshot.PID) bool {
	stat, err := proc.FS{}.Stat(pid)
	return err == nil && !stat.Gone()
}

// keeps requires that nothing of a container is given back by a look that cleans up.
func (h *runtimeHost) keeps(init snapshot.PID, after string) {
	h.t.Helper()
	require.NoError(h.t, h.store.Update(h.t.Context(), func(*state.Files) error { return nil }))
	files := h.files()
	require.Len(h.t, files.Environments, 1, after)
	require.Equal(h.t, []snapshot.PID{init}, files.Environments[0].PIDs, after)
	require.Equal(h.t, []snapshot.DeviceIndex{0}, files.AttachedTo(files.Environments[0].EID), after)
}
