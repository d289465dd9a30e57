// Package quota is what one account may take of what all accounts of a host share: entries of a file or of a
// snapshot, messages, bytes of a record, time, and turns. However much one account takes, others have their part.
//
//	if !quota.Leaves(own+n, all, most) {
//		return errFull
//	}
//	release, err := turns.Take(ctx, uid)
//
// It has no clock, and knows no accounts: those are of any type.
package quota

import (
	"math"
	"slices"
)

// reserve is the part that stays for others: see Leaves.
const reserve = 8

// Leaves says whether an account that has own leaves enough for others, when all accounts together have all of at most
// most: own may be an eighth of what is left. So there is room for others, however many have their part.
func Leaves(own, all, most int) bool { return reserve*own <= most-all }

// Fair is the most that each of the sizes may keep, so that their sum is at most the limit. What small ones don't
// need is left to the others.
func Fair(sizes []int, limit int) int {
	sizes = slices.Sorted(slices.Values(sizes))
	for i, size := range sizes {
		if share := limit / (len(sizes) - i); size > share {
			return share
		}
		limit -= size
	}
	return math.MaxInt
}
