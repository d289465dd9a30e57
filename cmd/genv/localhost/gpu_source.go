package localhost

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/seed-3119e985/genv/snapshot/amdgpu"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// gpuSource asks nvidia-smi, or the kernel on a machine with AMD GPUs and without nvidia-smi.
type gpuSource struct {
	nvidia *nvidiasmi.Querier
	amd    amdgpu.FS
}

// isAMD says whether a failure of nvidia-smi means that the GPUs are AMD's.
func (s gpuSource) isAMD(err error) bool {
	return errors.Is(err, nvidiasmi.ErrNotInstalled) && s.amd.Present()
}

// Apps implements local.SMI.
func (s gpuSource) Apps(ctx context.Context) (nvidiasmi.Usage, error) {
	return ask(ctx, s, s.nvidia.Apps, s.amd.Apps)
}

// Devices implements local.SMI.
func (s gpuSource) Devices(ctx context.Context) ([]nvidiasmi.GPU, error) {
	return ask(ctx, s, s.nvidia.Devices, s.amd.Devices)
}

// List implements local.SMI.
func (s gpuSource) List(ctx context.Context) ([]nvidiasmi.ListedGPU, error) {
	return ask(ctx, s, s.nvidia.List, s.amd.List)
}

func ask[T any](ctx context.Context, s gpuSource, nvidia, amd func(context.Context) (T, error)) (T, error) {
	answer, err := nvidia(ctx)
	if s.isAMD(err) {
		return amd(ctx)
	}
	return answer, err
}

// AMDGPUs is where the kernel says which AMD GPUs there are: /sys, or on a simulated host with
// such GPUs the folder sys in GENV_ROOT_DIR.
func AMDGPUs(getenv func(string) string) amdgpu.FS {
	if root := getenv("GENV_ROOT_DIR"); root != "" {
		sys := filepath.Join(root, "sys")
		if _, err := os.Stat(filepath.Join(sys, "class/kfd")); err == nil {
			return amdgpu.FS{Sys: sys}
		}
	}
	return amdgpu.FS{}
}

// AMD says whether the GPUs of this machine are AMD's, which programs select by other
// variables.
func AMD(getenv func(string) string) bool {
	if !AMDGPUs(getenv).Present() {
		return false
	}
	_, err := smiInPath{getenv}.find()
	return errors.Is(err, nvidiasmi.ErrNotInstalled)
}
