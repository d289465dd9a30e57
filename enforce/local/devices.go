package local

import (
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// checkDevices compares the devices in use with those that were judged. Outside any environment a process was judged
// for each, so one is enough. In one, all must still be in use: those that are left may be the environment's own. More
// devices make no difference.
func checkDevices(t *target, listed *snapshot.Process) objection {
	if o := checkAnyDevice(t.judged, listed); o.raised() || t.item.Outside() {
		return o
	}
	if freed := freedDevices(t.judged, listed); len(freed) > 0 {
		return changed("%s", unused(freed)).evasiveIf(true)
	}
	return objection{}
}

// checkUnattached objects to a process that ends for devices to which its environment was not attached, if it is now.
func checkUnattached(t *target, now *inspection) objection {
	if len(t.item.Unattached) == 0 {
		return objection{}
	}
	devices, err := now.devices()
	if err != nil {
		return failed("not begun, since what is attached could not be read again: %v", err)
	}
	attached := snapshot.AttachedTo(devices, t.judged.EID)
	if slices.ContainsFunc(t.item.Unattached, func(i snapshot.DeviceIndex) bool { return !slices.Contains(attached, i) }) {
		return objection{}
	}
	return changed("GPU(s) %s are attached to its environment now", text.JoinIndices(t.item.Unattached))
}

// checkAnyDevice objects if a process uses none of the devices that were judged.
func checkAnyDevice(judged, listed *snapshot.Process) objection {
	if freed := freedDevices(judged, listed); len(freed) == len(judged.Usage) {
		return changed("%s", unused(freed))
	}
	return objection{}
}

// freedDevices are the judged devices that the process doesn't use any more, in ascending order.
func freedDevices(judged, listed *snapshot.Process) []snapshot.DeviceIndex {
	var freed []snapshot.DeviceIndex
	for _, usage := range judged.Usage {
		if listed == nil || listed.Uses(usage.Index) == nil {
			freed = append(freed, usage.Index)
		}
	}
	slices.Sort(freed)
	return freed
}

func unused(freed []snapshot.DeviceIndex) string {
	return "it does not use GPU(s) " + text.JoinIndices(freed) + " any more"
}

// uuids are which GPU each index is.
type uuids = map[snapshot.DeviceIndex]snapshot.GPUUUID

// otherGPU objects to a device that isn't the GPU any more that the order names, or isn't the
// one to which it is attached by root's note. files may be nil.
func otherGPU(index snapshot.DeviceIndex, named, now uuids, files *state.Files) objection {
	uuid := named[index]
	if uuid == "" {
		return objection{}
	}
	if now[index] != uuid {
		return changed("GPU %s is another GPU now than was judged: the GPUs were renumbered", index)
	}
	if files != nil {
		if d := files.Device(index); d != nil && d.UUID != "" && d.UUID != uuid {
			return changed("GPU %s was another GPU when it was attached: root's genv has to look first", index)
		}
	}
	return objection{}
}
