package nvidiasmi

import (
	"errors"
	"fmt"
)

// Errors of nvidia-smi, each with the next step. If nvidia-smi ran and failed, an
// *ExitError wraps one of them.
var (
	ErrNotInstalled    = errors.New("nvidia-smi not found: install the NVIDIA driver, or add the folder of nvidia-smi to PATH")
	ErrNoDriver        = errors.New("the NVIDIA driver is not loaded: try `modprobe nvidia`, and look at `dmesg` if that fails")
	ErrVersionMismatch = errors.New("the NVIDIA driver was updated but the old one is still loaded: reboot, or stop the processes that use the GPUs and load the new one")
	ErrNoDevices       = errors.New("the NVIDIA driver finds no GPU: look at `lspci -d 10de:` and `dmesg`")
	ErrGPULost         = errors.New("a GPU has fallen off the bus: look at `dmesg` for Xid, then reset it or reboot")
	ErrPermission      = errors.New("nvidia-smi has no permission to use the GPUs: run it as root, or give it access to /dev/nvidia*")
	ErrFailed          = errors.New("nvidia-smi failed: run it manually on this machine to see its output")
	ErrTimeout         = errors.New("nvidia-smi did not answer in time: the driver may hang (look at `dmesg`); with persistence mode (`nvidia-smi -pm 1`) it answers faster")
	ErrHung            = errors.New("the GPU or its driver hangs, so that an earlier nvidia-smi does not return: look at `dmesg` for Xid; the machine may need a reboot")
	ErrGarbled         = errors.New("nvidia-smi printed unexpected output: run it manually on this machine to see it")
)

// ExitError is a failed run of nvidia-smi. It wraps one of the errors above.
type ExitError struct {
	Err      error
	ExitCode int
	Text     string // the line of the output that says why, quoted; may be empty
}

func (e *ExitError) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("nvidia-smi exited with %d: %v", e.ExitCode, e.Err)
	}
	return fmt.Sprintf("nvidia-smi exited with %d (%s): %v", e.ExitCode, e.Text, e.Err)
}

func (e *ExitError) Unwrap() error { return e.Err }

// symptoms are texts that drivers print on stdout or stderr when they fail.
var symptoms = []struct {
	text string
	err  error
}{
	{"Driver/library version mismatch", ErrVersionMismatch},
	{"couldn't communicate with the NVIDIA driver", ErrNoDriver},
	{"Driver Not Loaded", ErrNoDriver},
	{"NVML library not found", ErrNotInstalled},
	{"couldn't find libnvidia-ml", ErrNotInstalled},
	{"No supported GPUs were found", ErrNoDevices},
	{"No devices were found", ErrNoDevices},
	{"GPU is lost", ErrGPULost},
	{"Unable to determine the device handle", ErrGPULost},
	{"GPU requires reset", ErrGPULost},
	{"Insufficient Permissions", ErrPermission},
}

// exitCodes are the return codes listed in nvidia-smi(1), for failures without a known
// text.
var exitCodes = map[int]error{4: ErrPermission, 9: ErrNoDriver, 12: ErrNotInstalled, exitLost: ErrGPULost, 18: ErrVersionMismatch, 127: ErrNotInstalled}
