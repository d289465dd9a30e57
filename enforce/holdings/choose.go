package holdings

import (
	"cmp"
	"slices"
)

// choice is a choice of devices in the making, on which nothing else depends
// yet: the processes that would end because of it are kept here.
type choice struct {
	ending map[processOf]bool
	chosen []*candidate
}

// choose takes devices until it is enough: idle ones first, then those of
// processes that end anyway, then the others; within each the newest
// attachment first, then by host and index. Once a busy device is taken, its
// processes end, and what else they alone used on that host goes before the
// next busy one. The more a choice is proven to hurt, the later it is made.
func choose(devices []*candidate, enough func(chosen []*candidate) bool) []*candidate {
	c := &choice{ending: map[processOf]bool{}}
	queue := make([]*candidate, 0, len(devices))
	for _, d := range devices {
		if d.takeable() {
			queue = append(queue, d)
		}
	}
	slices.SortFunc(queue, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), first(a.going, b.going), b.Newest.Compare(a.Newest), a.host().compare(b.host()), cmp.Compare(a.Index, b.Index))
	})
	for _, d := range queue {
		if enough(c.chosen) {
			break
		}
		if !c.take(d) || len(d.Processes) == 0 {
			continue
		}
		for _, other := range queue {
			if other.Host == d.Host && other.remaining == d.remaining && !enough(c.chosen) && other.costAfter(c.ending) <= costEndsAnyway {
				c.take(other)
			}
		}
	}
	return c.chosen
}

func (c *choice) take(d *candidate) bool {
	if d.chosen {
		return false
	}
	d.chosen = true
	c.chosen = append(c.chosen, d)
	for _, use := range d.Processes {
		c.ending[processOf{d.remaining, use.Process}] = true
	}
	return true
}

func (h *Host) compare(other *Host) int {
	return cmp.Or(cmp.Compare(h.Order, other.Order), cmp.Compare(h.Name, other.Name))
}
