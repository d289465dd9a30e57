package localhost

import (
	"os"
	"path/filepath"

	"github.com/seed-3119e985/genv/snapshot/hardware"
)

// Hardware is where this process learns what the GPUs of this machine are.
func Hardware(getenv func(string) string) hardware.Source {
	return hardware.Source{Run: RunDir(getenv), Proc: driverProc(getenv), Root: os.Geteuid() == 0, Contained: contained(getenv)}
}

// driverProc is the folder with NVIDIA's driver/nvidia/gpus: /proc, or on a simulated host
// with such GPUs the folder proc in GENV_ROOT_DIR.
func driverProc(getenv func(string) string) string {
	if root := getenv("GENV_ROOT_DIR"); root != "" {
		proc := filepath.Join(root, "proc")
		if _, err := os.Stat(filepath.Join(proc, "driver/nvidia/gpus")); err == nil {
			return proc
		}
	}
	return "/proc"
}
