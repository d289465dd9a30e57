package gpus

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// SeenBy is the driver as nvidia-smi shows it to a user: without the devices that are
// drained, and on a guarded host only the visible ones. Those that it shows are numbered from
// 0. What a guard does is constructed after what NVML does where a process can't open some of
// the nodes, as in a container.
func (d Driver) SeenBy(uid int) Driver {
	shown := func(device Device) bool {
		return device.Fault != Drained && (d.Visible == nil || uid == 0 || slices.Contains(d.Visible[uid], device.Index))
	}
	if !slices.ContainsFunc(d.Devices, func(device Device) bool { return !shown(device) }) {
		return d
	}
	all := view{Driver: d}
	seen := d
	seen.Devices, seen.Apps = nil, nil
	for _, device := range d.Devices {
		if !shown(device) {
			continue
		}
		for _, app := range all.On(device) {
			app.UUID = all.uuidOf(app)
			seen.Apps = append(seen.Apps, app)
		}
		minor := device.MinorNumber()
		device.Minor, device.Bus = &minor, device.place()
		device.Index = len(seen.Devices)
		seen.Devices = append(seen.Devices, device)
	}
	return seen
}

// place is the place on the PCI bus.
func (d Device) place() int { return cmp.Or(d.Bus, d.Index+1) }

// MinorNumber is the number of the device's node.
func (d Device) MinorNumber() int {
	if d.Minor == nil {
		return d.Index
	}
	return *d.Minor
}

// WriteProc writes what the driver shows in /proc/driver/nvidia, below the folder proc: as
// long as GENV_ROOT_DIR has a folder proc with it, genv reads it there. It is laid out as
// nv-procfs.c of NVIDIA's open-gpu-kernel-modules does it, with values of our own. A lost device is still there, a drained one isn't.
func (d Driver) WriteProc(proc string) error {
	folder := filepath.Join(proc, "driver/nvidia/gpus")
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	for _, device := range d.Devices {
		if device.Fault == Drained {
			continue
		}
		address := fmt.Sprintf("0000:%02x:00.0", device.place())
		text := fmt.Sprintf("Model: \t\t %s\nIRQ:   \t\t 10\nGPU UUID: \t %s\nBus Type: \t PCIe\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No\n",
			device.Name, device.UUID, address, device.MinorNumber())
		if err := os.MkdirAll(filepath.Join(folder, address), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, address, "information"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
