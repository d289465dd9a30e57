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
	slices.SortFunc(queue, (*candidate).compare)
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

// compare says which of two devices goes first: the one that costs the user less, then what may be going
// already, then the newest attachment, then by host and index.
func (d *candidate) compare(other *candidate) int {
	return cmp.Or(cmp.Compare(d.cost, other.cost), first(d.going, other.going), other.Newest.Compare(d.Newest),
		d.host().compare(other.host()), cmp.Compare(d.Index, other.Index))
}

func (h *Host) compare(other *Host) int {
	return cmp.Or(cmp.Compare(h.Order, other.Order), cmp.Compare(h.Name, other.Name))
}
