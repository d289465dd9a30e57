package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAUserSetsUpARootlessDocker: without root, in a folder of the user's.
func TestAUserSetsUpARootlessDocker(t *testing.T) {
	h := newOwnHost(t)
	home := filepath.Join(h.dir, "home")
	require.NoError(t, os.Mkdir(home, 0o700))
	require.NoError(t, os.Chown(home, rootlessUser, rootlessUser))
	config := filepath.Join(home, ".config/docker/daemon.json")
	runc := filepath.Join(h.dir, "runc")
	require.NoError(t, os.WriteFile(runc, []byte("#!/bin/sh\n"), 0o755))
	out, ok := h.does(rootlessUser, "host", "setup-docker", "--config", config, "--real", runc)
	require.True(t, ok, out)
	require.Contains(t, out, "Next: systemctl --user restart docker")
	written, err := os.ReadFile(config)
	require.NoError(t, err)
	require.JSONEq(t, fmt.Sprintf(`{"runtimes": {"genv": {"path": %q, "runtimeArgs": ["container-runtime", "--real=%s", "--instead-of=runc", "--"]}}, "default-runtime": "genv"}`, h.binary, runc), string(written))
	out, ok = h.does(rootlessUser, "host", "setup-docker", "--config", config, "--remove")
	require.True(t, ok, out)
	out, ok = h.does(containerUser, "host", "setup-docker", "--config", config, "--real", runc)
	require.False(t, ok, "another user's: %s", out)
}
