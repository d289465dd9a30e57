// Package amdgpu says which AMD GPUs this machine has and which processes use them, from what
// the kernel shows in /sys and /proc. It needs no program of AMD's.
//
//	fs := amdgpu.FS{}
//	if fs.Present() {
//		usage, err := fs.Apps(ctx)
//	}
//
// It answers as package nvidiasmi does, so that all others treat the GPUs alike. GPUs are
// numbered in the order of the kernel's compute driver (kfd), as ROCm numbers them.
//
//   - GPUs: /sys/class/kfd/kfd/topology/nodes/N, and what is measured of them in
//     /sys/class/drm/renderDM/device.
//   - Compute processes: /sys/class/kfd/kfd/proc/PID, with the memory that each uses of each GPU,
//     and its queues.
//   - Programs that compute without kfd (Vulkan, say): /proc/PID/fdinfo of their render nodes
//     (drm-usage-stats in the kernel's documentation). Those that also draw are graphics
//     programs, as an X server is, and are left out.
//
// What the kernel doesn't report is unknown and never 0. Of other users' processes only root
// can read fdinfo.
package amdgpu
