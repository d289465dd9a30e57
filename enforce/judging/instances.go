package judging

import (
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Instances are the MIG instances of the devices of a host.
type Instances struct {
	Devices  []snapshot.Device
	deviceOf map[snapshot.GPUUUID]snapshot.DeviceIndex // once it was asked for
}

// Of are the MIG instances that a process uses of devices, or of all without any. Those of
// no known device may be theirs.
func (i *Instances) Of(p *snapshot.Process, devices []snapshot.DeviceIndex) []snapshot.GPUUUID {
	if len(p.Instances) == 0 || len(devices) == 0 {
		return p.Instances
	}
	if i.deviceOf == nil {
		i.deviceOf = make(map[snapshot.GPUUUID]snapshot.DeviceIndex)
		for k := range i.Devices {
			for _, instance := range i.Devices[k].Instances {
				i.deviceOf[instance.UUID] = i.Devices[k].Index
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(p.Instances), func(uuid snapshot.GPUUUID) bool {
		index, known := i.deviceOf[uuid]
		return known && !slices.Contains(devices, index)
	})
}
