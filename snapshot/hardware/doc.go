// Package hardware knows the GPUs of this machine as root sees them, and lets every user
// know them too. On a guarded host a user's own nvidia-smi lists only the GPUs that the
// guard lets through, and numbers them from 0.
//
//	// root, whenever it has asked nvidia-smi
//	driver, err := hardware.FromDriver("/proc")
//	changed, err := hardware.Publish("/run/genv", hardware.Identified(found, driver))
//	// everybody
//	devices, err := hardware.Read("/run/genv")
//	if hardware.IsGuarded("/run/genv", time.Now()) { … }
//
// The index of a GPU is not the number of its device node: /dev/nvidia5 may be GPU 0. The
// driver shows which is which in /proc/driver/nvidia/gpus/ADDRESS/information: its lines
// "GPU UUID", "Bus Location", "Device Minor" and "GPU Excluded" (NVIDIA driver README,
// chapter "Using the /proc File System Interface"; nv-procfs.c of NVIDIA's
// open-gpu-kernel-modules writes them). Everybody may read that file, it needs no
// nvidia-smi, and a guard doesn't change it.
//
// NVML makes no promise about the order of its indices. It is the order of the PCI bus in
// all its versions so far, so FromDriver numbers GPUs by their addresses. What root
// publishes has the indices of root's own nvidia-smi, matched by UUID, and counts more.
//
// The package changes no state file and knows no environments.
package hardware
