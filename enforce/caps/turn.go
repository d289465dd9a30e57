package caps

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
)

func (c *choice) compare(d, other *personDevice) int {
	return cmp.Or(cmp.Compare(d.cost, other.cost), cmp.Compare(fewest(c.most, other), fewest(c.most, d)),
		newerFirst(d, other))
}

func newerFirst(d, other *personDevice) int {
	return cmp.Or(other.Newest.Compare(d.Newest), other.Written.Compare(d.Written), byHost(d, other))
}

// fewest counts the devices of the owner with the fewest: people lose none because a co-user has more.
func fewest(has map[int]int, devices ...*personDevice) int {
	least := math.MaxInt
	for _, d := range devices {
		for _, part := range d.perOwner() {
			least = min(least, has[part.Owner])
		}
	}
	return least
}

// inTurn are devices of the same cost, newest first. If people share a cap, the person with most is next.
func (c *choice) inTurn(devices []*personDevice) iter.Seq[*personDevice] {
	slices.SortFunc(devices, newerFirst)
	if len(c.most) == 1 {
		return slices.Values(devices)
	}
	return func(yield func(*personDevice) bool) {
		left, most := make(map[string][]*personDevice), 0 // by owners
		for _, d := range devices {
			owners := d.owners()
			left[owners], most = append(left[owners], d), max(most, fewest(c.most, d))
		}
		for ; most > 0; most-- {
			for _, owners := range c.withAsMany(most, left) {
				for list := left[owners]; len(list) > 0 && fewest(c.most, list[0]) == most; list = left[owners] {
					if left[owners] = list[1:]; !yield(list[0]) {
						return
					}
				}
			}
		}
	}
}

func (d *personDevice) owners() string {
	var owners []int
	for _, part := range d.perOwner() {
		owners = append(owners, part.Owner)
	}
	return fmt.Sprint(owners)
}

func (c *choice) withAsMany(n int, left map[string][]*personDevice) (all []string) {
	for owners, list := range left {
		if len(list) > 0 && fewest(c.most, list[0]) == n {
			all = append(all, owners)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return newerFirst(left[a][0], left[b][0]) })
	return all
}
