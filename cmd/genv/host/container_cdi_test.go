package host_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// bundle writes what an engine that leaves CDI to the runtime hands to it: a config.json with
// an annotation.
func (h *runtimeHost) bundle(devices string) (dir string) {
	h.t.Helper()
	dir = h.t.TempDir()
	bin := filepath.Join(dir, "rootfs/bin")
	require.NoError(h.t, os.MkdirAll(bin, 0o755))
	out, err := h.Command("sh", "-c", `cp "$(command -v busybox)" `+bin+`/env && runc spec --bundle `+dir).CombinedOutput()
	require.NoError(h.t, err, "%s", out)
	path := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(path)
	require.NoError(h.t, err)
	var config map[string]any
	require.NoError(h.t, json.Unmarshal(data, &config))
	config["annotations"] = map[string]string{"cdi.k8s.io/lab_gpus": devices}
	process, ok := config["process"].(map[string]any)
	require.True(h.t, ok)
	process["terminal"], process["args"] = false, []string{"/bin/env"}
	data, err = json.Marshal(config)
	require.NoError(h.t, err)
	require.NoError(h.t, os.WriteFile(path, data, 0o600))
	return dir
}

// TestCDINamesInAnAnnotation: runc starts the container with the devices that have these names.
func TestCDINamesInAnAnnotation(t *testing.T) {
	h := newRuntimeHost(t)
	run := func(devices string) (string, error) {
		out, err := h.Command(h.binary, "container-runtime", "--", "run", "--bundle", h.bundle(devices), strings.Repeat("ab", 32)).CombinedOutput()
		return string(out), err
	}
	for devices, visible := range map[string]string{
		"nvidia.com/gpu=1":                        "GPU-10",
		"nvidia.com/gpu=GPU-20,nvidia.com/gpu=3":  "GPU-20,GPU-30",
		"vendor.com/net=eth0, nvidia.com/gpu=all": "GPU-00,GPU-10,GPU-20,GPU-30",
	} {
		out, err := run(devices)
		require.NoError(t, err, "%s: %s", devices, out)
		require.Contains(t, out, "\nNVIDIA_VISIBLE_DEVICES="+visible+"\n", devices)
		h.free(devices)
	}
	out, err := run("nvidia.com/gpu=7")
	require.Error(t, err, out)
	require.Contains(t, out, "There is no device 7")
	h.free("a device that doesn't exist")
}
