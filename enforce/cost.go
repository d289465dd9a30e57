package enforce

import (
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// The cost for the user of losing a device, the lowest first. A device whose use is
// only reported, without a uid of the user, is taken before one that is proven to
// be in use: whoever forges state on one host can't have a job ended on another.
const (
	costIdle = iota
	costEndsAnyway
	costReported
	costBusy
)

// cost is what losing the device costs the user, if the processes in ending end as well.
func (d *allocatedDevice) cost(ending map[*snapshot.Process]bool) int {
	cost := costIdle
	switch d.unknown {
	case proven:
		return costBusy
	case reported:
		cost = costReported
	}
	for _, p := range d.processes {
		switch {
		case ending[p] || d.host.draft.terminates(p):
			cost = max(cost, costEndsAnyway)
		case p.UID == nil || *p.UID == 0:
			cost = max(cost, costReported)
		default:
			return costBusy
		}
	}
	return cost
}

// busy reports whether the device is proven to be in use, by processes that the plan
// doesn't end anyway.
func (d *allocatedDevice) busy() bool { return d.cost(nil) == costBusy }

// counts reports whether the device counts for the user's caps. One that can't be
// taken from the user, since exempt processes use it, counts only if one of the
// user's own uid does: otherwise a job elsewhere could have to end for it.
func (d *allocatedDevice) counts() bool {
	return !d.leaves() && (d.exempt != reported || d.busy())
}

// counted lists the devices that count for the user's caps.
func (u *allocation) counted() []*allocatedDevice {
	return slices.DeleteFunc(slices.Clone(u.devices), func(d *allocatedDevice) bool { return !d.counts() })
}
