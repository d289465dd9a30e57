package local

import (
	"slices"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// inspectDevices compares the devices that a process uses with those that were
// judged. Outside any environment each one of them was a ground. In one, the
// report doesn't say which: then all of them must be in use, since those that
// are left may be the environment's own. One more does no good.
func inspectDevices(t *target, listed *snapshot.Process) verdict {
	freed := freedDevices(t.judged, listed)
	switch {
	case len(freed) == 0:
		return verdict{}
	case len(freed) == len(t.judged.Usage):
		return changed("%s", unused(freed))
	case t.item.Outside():
		return verdict{}
	}
	return evasive("%s", unused(freed))
}

// inspectAnyDevice objects if a process uses none of the devices that were judged.
func inspectAnyDevice(judged, listed *snapshot.Process) verdict {
	if freed := freedDevices(judged, listed); len(freed) == len(judged.Usage) {
		return changed("%s", unused(freed))
	}
	return verdict{}
}

// freedDevices are those with which a process was judged and which it doesn't use
// any more, in ascending order.
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
	return "it does not use GPU(s) " + enforce.Indices(freed) + " any more"
}
