package enforce

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/snapshot"
)

// choice is a choice of devices in the making, on which nothing else depends
// yet: the processes that would end because of it are kept here.
type choice struct {
	ending map[*snapshot.Process]bool
	chosen []*allocatedDevice
	taken  map[*allocatedDevice]bool
}

// choose takes devices until it is enough: idle ones first, then those of
// processes that the plan ends anyway, then the others; within each the newest
// attachment first, then by host and index. Once a busy device is taken, its
// processes end, and what else they alone used on that host goes before the
// next busy one. The more a choice is proven to hurt, the later it is made.
func choose(devices []*allocatedDevice, enough func(chosen []*allocatedDevice) bool) []*allocatedDevice {
	c := &choice{ending: map[*snapshot.Process]bool{}, taken: map[*allocatedDevice]bool{}}
	queue := make([]*allocatedDevice, 0, len(devices))
	for _, d := range devices {
		if d.exempt == contents.Unused {
			d.costAtFirst = d.cost(nil)
			queue = append(queue, d)
		}
	}
	slices.SortStableFunc(queue, func(a, b *allocatedDevice) int {
		return cmp.Or(cmp.Compare(a.costAtFirst, b.costAtFirst), b.newest.Compare(a.newest), cmp.Compare(a.host.order, b.host.order), cmp.Compare(a.device.Index, b.device.Index))
	})
	for _, d := range queue {
		if enough(c.chosen) {
			break
		}
		if !c.take(d) || len(d.processes) == 0 {
			continue
		}
		for _, other := range queue {
			if other.host == d.host && !enough(c.chosen) && other.cost(c.ending) <= costEndsAnyway {
				c.take(other)
			}
		}
	}
	return c.chosen
}

func (c *choice) take(d *allocatedDevice) bool {
	if c.taken[d] {
		return false
	}
	c.taken[d] = true
	c.chosen = append(c.chosen, d)
	for _, p := range d.processes {
		c.ending[p] = true
	}
	return true
}

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
func (d *allocatedDevice) cost(ending map[*snapshot.Process]bool) int8 {
	cost := int8(costIdle)
	switch d.unknown {
	case contents.Proven:
		return costBusy
	case contents.Reported:
		cost = costReported
	}
	for _, p := range d.processes {
		switch {
		case ending[p] || d.host.draft.terminates(p):
			cost = max(cost, costEndsAnyway)
		case p.UID == nil || *p.CountedUID() == 0:
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
	return !d.leaves() && (d.exempt != contents.Reported || d.busy())
}

// counted lists the devices that count for the user's caps.
func (u *allocation) counted() []*allocatedDevice {
	return slices.DeleteFunc(slices.Clone(u.devices), func(d *allocatedDevice) bool { return !d.counts() })
}
