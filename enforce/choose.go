package enforce

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// What it costs the user to lose a device, the least first. A device whose use is
// only reported, without a uid of the user, is taken before one that is proven to
// be in use: whoever forges state on one host can't have a job ended on another.
const (
	costIdle = iota
	costEndsAnyway
	costReported
	costBusy
)

// choice is a choice of devices in the making, on which nothing else depends
// yet: who would end because of it is kept here.
type choice struct {
	ending map[*snapshot.Process]bool
	chosen []*heldDevice
	taken  map[*heldDevice]bool
}

// choose takes devices until it is enough: idle ones first, then those whose
// processes the plan ends anyway, then the others; within each the newest
// attachment first, then by host and index. Once a busy device is taken, its
// processes end, and what else they alone used on that host goes before the
// next busy one. The more a choice is proven to hurt, the later it is made.
func choose(devices []*heldDevice, enough func(chosen []*heldDevice) bool) []*heldDevice {
	c := &choice{ending: map[*snapshot.Process]bool{}, taken: map[*heldDevice]bool{}}
	queue := make([]*heldDevice, 0, len(devices))
	for _, d := range devices {
		if d.exempt == unused {
			queue = append(queue, d)
		}
	}
	slices.SortStableFunc(queue, func(a, b *heldDevice) int {
		return cmp.Or(cmp.Compare(c.cost(a), c.cost(b)), b.newest.Compare(a.newest), cmp.Compare(a.order, b.order), cmp.Compare(a.device.Index, b.device.Index))
	})
	for _, d := range queue {
		if enough(c.chosen) {
			break
		}
		if !c.take(d) || len(d.users) == 0 {
			continue
		}
		for _, other := range queue {
			if other.host == d.host && !enough(c.chosen) && c.cost(other) <= costEndsAnyway {
				c.take(other)
			}
		}
	}
	return c.chosen
}

func (c *choice) take(d *heldDevice) bool {
	if c.taken[d] {
		return false
	}
	c.taken[d] = true
	c.chosen = append(c.chosen, d)
	for _, p := range d.users {
		c.ending[p] = true
	}
	return true
}

func (c *choice) cost(d *heldDevice) int {
	cost := costIdle
	switch d.unknown {
	case proven:
		return costBusy
	case reported:
		cost = costReported
	}
	for _, p := range d.users {
		switch {
		case c.ending[p] || d.host.draft.kills(p):
			cost = max(cost, costEndsAnyway)
		case p.UID == nil || *p.UID == 0:
			cost = max(cost, costReported)
		default:
			return costBusy
		}
	}
	return cost
}
