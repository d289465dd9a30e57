package enforce

import (
	"cmp"
	"slices"

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
		if d.exempt == unused {
			queue = append(queue, d)
		}
	}
	slices.SortStableFunc(queue, func(a, b *allocatedDevice) int {
		return cmp.Or(cmp.Compare(a.cost(c.ending), b.cost(c.ending)), b.newest.Compare(a.newest), cmp.Compare(a.host.order, b.host.order), cmp.Compare(a.device.Index, b.device.Index))
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
