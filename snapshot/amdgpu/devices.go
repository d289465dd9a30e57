package amdgpu

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// Devices lists the GPUs by index. There is at least one: without any it is ErrNoDriver.
func (f FS) Devices(context.Context) ([]nvidiasmi.GPU, error) {
	nodes, err := f.nodes()
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return nil, ErrNoDriver
	}
	devices := make([]nvidiasmi.GPU, len(nodes))
	for i, n := range nodes {
		devices[i] = f.measure(n)
		devices[i].Index, devices[i].UUID = snapshot.DeviceIndex(i), n.uuid
	}
	return devices, nil
}

// List lists the GPUs. Partitions of a GPU are GPUs of their own here.
func (f FS) List(ctx context.Context) ([]nvidiasmi.ListedGPU, error) {
	devices, err := f.Devices(ctx)
	list := make([]nvidiasmi.ListedGPU, len(devices))
	for i, d := range devices {
		list[i] = nvidiasmi.ListedGPU{Index: d.Index, UUID: d.UUID}
	}
	return list, err
}

// measure reads what the kernel measures of a GPU. What can't be read is unknown.
func (f FS) measure(n node) nvidiasmi.GPU {
	folder := filepath.Join(cmp.Or(f.Sys, "/sys"), "class/drm", fmt.Sprintf("renderD%d", n.render), "device")
	product, _ := read(filepath.Join(folder, "product_name"))
	g := nvidiasmi.GPU{Name: cmp.Or(printable(product), n.name)}
	g.TotalMemory = memoryIn(filepath.Join(folder, "mem_info_vram_total"))
	g.UsedMemory = memoryIn(filepath.Join(folder, "mem_info_vram_used"))
	if busy, err := readNumber(filepath.Join(folder, "gpu_busy_percent")); err == nil && busy <= 100 {
		percent := int(busy)
		g.Utilization = &percent
	}
	if milli, ok := sensor(folder, "temp1_input"); ok {
		if celsius := int(milli / 1000); snapshot.CheckTemperature(celsius) == nil {
			g.Temperature = &celsius
		}
	}
	micro, ok := sensor(folder, "power1_average")
	if !ok {
		micro, ok = sensor(folder, "power1_input")
	}
	if watts := float64(micro) / 1e6; ok && snapshot.CheckPower(watts) == nil {
		g.Power = &watts
	}
	return g
}

// memoryIn is an amount of bytes in a file, rounded down to MiB; unknown if there is none.
func memoryIn(path string) snapshot.Memory {
	n, err := readNumber(path)
	if err != nil || n > maxBytes {
		return snapshot.Memory{}
	}
	return snapshot.MiB(int64(n >> 20))
}

// maxBytes is 1 EiB: far more than any device has, and far from an overflow.
const maxBytes = 1 << 60

// sensor is a value of the GPU's hwmon folder, of which there is one.
func sensor(folder, name string) (uint64, bool) {
	found, err := filepath.Glob(filepath.Join(folder, "hwmon/hwmon*", name))
	if err != nil || len(found) != 1 {
		return 0, false
	}
	n, err := readNumber(found[0])
	return n, err == nil && n <= maxBytes
}
