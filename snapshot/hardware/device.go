package hardware

import (
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// Device is a GPU of this machine, as root sees it.
type Device struct {
	Index snapshot.DeviceIndex
	UUID  snapshot.GPUUUID // empty if it is unknown: without a program on it, the driver may not know it yet
	// Minor is the number of its device node, /dev/nvidiaN; nil if it is unknown.
	Minor *int
	// Address is that of the PCI bus as the driver's /proc folder names it, such as
	// "0000:62:00.0"; empty if it is unknown.
	Address     string
	Name        string
	TotalMemory snapshot.Memory     // unknown without nvidia-smi
	Unified     bool                // it shares the memory of the machine, which TotalMemory is then
	Instances   []snapshot.Instance // of MIG, as nvidia-smi lists them
}

// Device is the device in the model, without attachments.
func (d *Device) Device() snapshot.Device {
	return snapshot.Device{Index: d.Index, UUID: d.UUID, Name: d.Name, TotalMemory: d.TotalMemory, Unified: d.Unified, Instances: d.Instances}
}

// Devices are the devices in the model.
func Devices(list []Device) []snapshot.Device {
	devices := make([]snapshot.Device, len(list))
	for i := range list {
		devices[i] = list[i].Device()
	}
	return devices
}

// Identified are the devices that root's nvidia-smi found, with what the driver's /proc
// folder adds: address and minor. They are matched by UUID only, never by their positions:
// a guard that confused two minors would close the wrong GPU.
func Identified(found []snapshot.Device, driver []Device) []Device {
	list := make([]Device, len(found))
	for i, d := range found {
		list[i] = Device{Index: d.Index, UUID: d.UUID, Name: d.Name, TotalMemory: d.TotalMemory, Unified: d.Unified, Instances: d.Instances}
		if known := byUUID(driver, d.UUID); known != nil {
			list[i].Minor, list[i].Address = known.Minor, known.Address
		}
	}
	return list
}

// byUUID returns the only device with a UUID, or nil.
func byUUID(list []Device, uuid snapshot.GPUUUID) *Device {
	has := func(d Device) bool { return d.UUID == uuid && uuid != "" }
	i := slices.IndexFunc(list, has)
	if i < 0 || slices.ContainsFunc(list[i+1:], has) {
		return nil
	}
	return &list[i]
}

// UUIDs are those of the devices at the given indices, in that order; ok is false if one
// is unknown.
func UUIDs(list []Device, indices []snapshot.DeviceIndex) (uuids []snapshot.GPUUUID, ok bool) {
	for _, index := range indices {
		i := slices.IndexFunc(list, func(d Device) bool { return d.Index == index })
		if i < 0 || list[i].UUID == "" {
			return nil, false
		}
		uuids = append(uuids, list[i].UUID)
	}
	return uuids, true
}

// WithMissing adds the GPUs that the driver has and nvidia-smi doesn't list, and identifies those
// of which it says only that they are lost. Where both are as many, they are in the same order.
func WithMissing(list []nvidiasmi.GPU, driver []Device) []nvidiasmi.GPU {
	nameless := func(g *nvidiasmi.GPU) bool { return g.Failed && g.UUID == "" && g.Address == "" }
	var unnamed []*nvidiasmi.GPU
	listed := make(map[snapshot.GPUUUID]bool, len(list))
	for i := range list {
		g := &list[i]
		at := slices.IndexFunc(driver, func(d Device) bool { return g.Address != "" && SameAddress(d.Address, g.Address) })
		if at >= 0 && g.UUID == "" {
			g.UUID, g.Name = driver[at].UUID, driver[at].Name
		}
		if listed[g.UUID] = true; nameless(g) {
			unnamed = append(unnamed, g)
		}
	}
	var missing []Device
	for _, d := range driver {
		if !listed[d.UUID] && d.UUID != "" {
			missing = append(missing, d)
		}
	}
	if len(missing) == len(unnamed) {
		for i, g := range unnamed {
			g.UUID, g.Name = missing[i].UUID, missing[i].Name
		}
	}
	for i := len(list); i < len(driver); i++ {
		g := nvidiasmi.GPU{Index: list[len(list)-1].Index + 1, Failed: true, Problem: "the driver has this GPU, and nvidia-smi doesn't list it"}
		if len(unnamed) == 0 && len(missing) == len(driver)-len(list) {
			g.UUID, g.Name = missing[0].UUID, missing[0].Name
			missing = missing[1:]
		}
		list = append(list, g)
	}
	return list
}
