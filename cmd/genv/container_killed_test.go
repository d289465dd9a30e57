package main

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

	// What watches the container, and the engine: as long as the container runs, it keeps what it has.
	for _, parts := range [][]string{{"containerd-shim"}, {"containerd", "dockerd"}} {
		name := "watched-by-" + parts[0]
		h.Run("--name", name, "-e", "GENV_GPUS=1", dockerd.Image, "sleep", "1000000")
		init := h.Init(name)
		for _, part := range parts {
			require.Positive(t, h.kill(part), part)
			require.True(t, len(h.files().Environments) == 1 || syscall.Kill(int(init), 0) != nil, "%s: the container runs", part)
		}
		_ = syscall.Kill(int(init), syscall.SIGKILL) // or it ended with its part
		h.free(fmt.Sprintf("SIGKILL of %v, and of the container", parts))
	}
	h.stopShims()
}
