package gpus

import (
	"fmt"
	"io"
	"os"
	"time"
)

// What EnvFault may say. FaultHang sleeps until it is killed or orphaned.
const (
	FaultHang     = "hang"
	FaultMismatch = "mismatch"
	FaultNoDriver = "no-driver"
	FaultLost     = "lost"
	FaultNoGPUs   = "no-gpus"
)

// fail acts out a fault; failed says that nothing else is to be done. A fault
// that is unknown fails too, so that a typing error is found.
func fail(fault string, stdout io.Writer) (code int, failed bool) {
	text := ""
	switch fault {
	case "":
		return 0, false
	case FaultHang:
		hang()
		return exitUnknown, true
	case FaultMismatch:
		code, text = exitMismatch, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.163\n"
	case FaultNoDriver:
		code, text = exitNoDriver, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "+
			"Make sure that the latest NVIDIA driver is installed and running.\n\n"
	case FaultLost:
		code, text = exitLost, "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover this GPU\n"
	case FaultNoGPUs:
		code, text = exitUnknown, "Failed to initialize NVML: No supported GPUs were found\n"
	default:
		code, text = exitUnknown, fmt.Sprintf("%s=%s is not a simulated fault\n", EnvFault, fault)
	}
	_, _ = io.WriteString(stdout, text) // a reader that has gone needs no text
	return code, true
}

// hang lasts as long as the caller does, so that no test leaves it behind.
func hang() {
	for parent := os.Getppid(); os.Getppid() == parent; {
		time.Sleep(50 * time.Millisecond)
	}
}
