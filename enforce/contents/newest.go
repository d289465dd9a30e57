package contents

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// fairLimit returns the most that each of the sizes may keep, so that their sum is at most
// the limit. What small ones don't need is left to the others.
func fairLimit(sizes []int, limit int) int {
	sizes = slices.Sorted(slices.Values(sizes))
	for i, size := range sizes {
		if share := limit / (len(sizes) - i); size > share {
			return share
		}
		limit -= size
	}
	return math.MaxInt
}

// NewestBeyond returns the keys to drop, so that at most limit are left: the largest groups
// lose their newest keys.
func NewestBeyond[G comparable](groups map[G][]string, limit int, since func(key string) time.Time) (dropped []string) {
	sizes := make([]int, 0, len(groups))
	for _, keys := range groups {
		sizes = append(sizes, len(keys))
	}
	share := fairLimit(sizes, limit)
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

// Room counts entries that belong to users of hosts. Each host, and each user there, has room for so many.
type Room struct {
	Max, MaxEach int // of a host, and of a user there
	hosts        map[snapshot.Hostname]int
	users        map[userOfHost]int
}

type userOfHost struct {
	host snapshot.Hostname
	user snapshot.Username
}

// Full reports whether there is no room for another entry.
func (r *Room) Full(host snapshot.Hostname, user snapshot.Username) bool {
	return r.hosts[host] >= r.Max || r.users[userOfHost{host, user}] >= r.MaxEach
}

// Add counts an entry.
func (r *Room) Add(host snapshot.Hostname, user snapshot.Username) {
	if r.hosts == nil {
		r.hosts, r.users = make(map[snapshot.Hostname]int), make(map[userOfHost]int)
	}
	r.hosts[host]++
	r.users[userOfHost{host, user}]++
}
