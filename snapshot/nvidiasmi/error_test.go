package nvidiasmi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

func TestFailure(t *testing.T) {
	for name, row := range map[string]struct {
		stdout, stderr string
		code           int
		want           error
	}{
		"version mismatch":   {"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161\n", "", 18, nvidiasmi.ErrVersionMismatch},
		"no driver":          {"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running.\n", "", 9, nvidiasmi.ErrNoDriver},
		"no supported GPU":   {"Failed to initialize NVML: No supported GPUs were found\n", "", 255, nvidiasmi.ErrNoDevices},
		"no devices":         {"No devices were found\n", "", 6, nvidiasmi.ErrNoDevices},
		"no devices, code 0": {"No devices were found\n", "", 0, nvidiasmi.ErrNoDevices},
		"after a warning":    {"WARNING: something\nFailed to initialize NVML: Unknown Error\n", "", 255, nvidiasmi.ErrFailed},
		"a message":          {"Something is wrong\n", "", 0, nvidiasmi.ErrGarbled},
		"GPU lost":           {"Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost. Reboot the system to recover this GPU\n", "", 15, nvidiasmi.ErrGPULost},
		"on stderr":          {"", "Failed to initialize NVML: Driver Not Loaded\n", 9, nvidiasmi.ErrNoDriver},
		"not allowed":        {"Failed to initialize NVML: Insufficient Permissions\n", "", 4, nvidiasmi.ErrPermission},
		"code alone":         {"", "", 15, nvidiasmi.ErrGPULost},
		"who knows":          {"Segmentation fault\n", "", 139, nvidiasmi.ErrFailed},
		"a signal":           {"", "", -1, nvidiasmi.ErrFailed},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := nvidiasmi.ParseDevices(nvidiasmi.RunResult{Stdout: []byte(row.stdout), Stderr: []byte(row.stderr), ExitCode: row.code})
			require.ErrorIs(t, err, row.want)
			var failed *nvidiasmi.ExitError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, row.code, failed.ExitCode)
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestErrorTextsAreEscaped(t *testing.T) {
	_, err := nvidiasmi.ParseDevices(nvidiasmi.RunResult{Stdout: []byte("\x1b]0;owned\x07"), ExitCode: 1})
	require.ErrorIs(t, err, nvidiasmi.ErrFailed)
	require.NotContains(t, err.Error(), "\x1b")
}
