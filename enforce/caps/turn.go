package caps

import (
	"cmp"
	"iter"
	"math"
	"slices"
)

// compare says which of two devices goes first: of equal cost, one of the person with the most.
func (c *choice) compare(d, other *heldDevice) int {
	return cmp.Or(cmp.Compare(d.cost, other.cost), cmp.Compare(fewest(c.most, other), fewest(c.most, d)),
		newerFirst(d, other))
}

func newerFirst(d, other *heldDevice) int {
	return cmp.Or(other.Newest.Compare(d.Newest), other.Written.Compare(d.Written), byPlace(d, other))
}

// fewest is how many devices the person with the fewest has, of those who have one of these: people don't lose one
// because a person with more uses it, too.
func fewest(has map[int]int, devices ...*heldDevice) int {
	least := math.MaxInt
	for _, d := range devices {
		for _, part := range d.whose() {
			least = min(least, has[part.Owner])
		}
	}
	return least
}

// inTurn are devices of the same cost, the newest first. Of people who share a cap it is the turn of the one with the
// most.
func (c *choice) inTurn(devices []*heldDevice) iter.Seq[*heldDevice] {
	slices.SortFunc(devices, newerFirst)
	if len(c.most) == 1 {
		return slices.Values(devices)
	}
	return func(yield func(*heldDevice) bool) {
		left := make(map[int][]*heldDevice) // of each person; one that several people have is by itself
		most := 0
		for i, d := range devices {
			owner := -1 - i
			if whose := d.whose(); len(whose) == 1 {
				owner = whose[0].Owner
			}
			left[owner], most = append(left[owner], d), max(most, fewest(c.most, d))
		}
		for ; most > 0; most-- {
			for _, owner := range c.withAsMany(most, left) {
				for list := left[owner]; len(list) > 0 && fewest(c.most, list[0]) == most; list = left[owner] {
					if left[owner] = list[1:]; !yield(list[0]) {
						return
					}
				}
			}
		}
	}
}

// withAsMany are the owners of devices who have so many, the one with the newest first.
func (c *choice) withAsMany(n int, left map[int][]*heldDevice) (all []int) {
	for owner, list := range left {
		if len(list) > 0 && fewest(c.most, list[0]) == n {
			all = append(all, owner)
		}
	}
	slices.SortFunc(all, func(a, b int) int { return newerFirst(left[a][0], left[b][0]) })
	return all
}
