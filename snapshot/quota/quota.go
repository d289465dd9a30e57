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

const reserve = 8

// Leaves says whether an account that has own leaves enough for others, where all have all of most: own may be an
// eighth of what is left.
func Leaves(own, all, most int) bool { return reserve*own <= most-all }

// Fair is the most that each size may keep so that their sum is at most the limit: small ones leave room to others.
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
