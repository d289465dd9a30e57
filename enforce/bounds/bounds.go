// Package bounds divides a limited room fairly, so that whoever makes things up takes
// nothing from the others. It is pure, and doesn't know what it divides.
package bounds

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Share is how much each may have, at most, so that all together have no more than
// the limit. What some leave is for the others.
func Share(sizes []int, limit int) int {
	sizes = slices.Sorted(slices.Values(sizes))
	for i, size := range sizes {
		if share := limit / (len(sizes) - i); size > share {
			return share
		}
		limit -= size
	}
	return math.MaxInt
}

// Newest are the keys beyond the limit: the groups with the most lose the newest of
// theirs, until so many are left.
func Newest[G comparable](groups map[G][]string, limit int, since func(key string) time.Time) (dropped []string) {
	sizes := make([]int, 0, len(groups))
	for _, keys := range groups {
		sizes = append(sizes, len(keys))
	}
	share := Share(sizes, limit)
	for _, keys := range groups {
		if len(keys) > share {
			dropped = append(dropped, oldestFirst(keys, since)[share:]...)
		}
	}
	return dropped
}

func oldestFirst(keys []string, since func(key string) time.Time) []string {
	type dated struct {
		key   string
		since time.Time
	}
	all := make([]dated, len(keys))
	for i, key := range keys {
		all[i] = dated{key, since(key)}
	}
	slices.SortFunc(all, func(a, b dated) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.key, b.key)) })
	sorted := make([]string, len(all))
	for i, d := range all {
		sorted[i] = d.key
	}
	return sorted
}
