package shards

import (
	"slices"
	"time"
)

const (
	// yieldAfter is for how long another controller must see hosts of a shard, and this one none of them,
	// until this one leaves it the shard. When hosts come back, not all controllers see them at once.
	yieldAfter = 20 * time.Second
	// yieldFor is for how long it leaves it the shard before it looks at the hosts again. Each time that it
	// then sees none, it is twice as long, up to yieldMost.
	yieldFor  = 5 * time.Minute
	yieldMost = time.Hour
)

// yields says whether a controller leaves a shard to others that see hosts.
type yields struct {
	worse *time.Duration // since when another one sees hosts, and this one doesn't; nil if that isn't so
	since *time.Duration // since when it leaves them the shard; nil if it doesn't
	pause time.Duration  // for how long; 0 if it has seen hosts since
}

// decide takes in what is seen, and whether this controller, self, runs the shard.
func (y *yields) decide(now time.Duration, runs bool, shard int, self *Member, seen *Seen) {
	others := seen.visible(shard, self.ID)
	if runs && self.sees(shard) {
		y.pause = 0
	}
	switch {
	case y.since != nil:
		// A leader sees hosts if none answers it for a moment.
		if now-*y.since >= y.pause || !others && !seen.held(shard) {
			y.since = nil
		}
	case !others || !runs || !slices.Contains(self.Blind, shard):
		y.worse = nil
	case y.worse == nil:
		y.worse = &now
	case now-*y.worse >= yieldAfter:
		y.worse, y.since = nil, &now
		y.pause = min(max(2*y.pause, yieldFor), yieldMost)
	}
}

// held reports whether a shard has a leader, and isn't only known as one of which a controller sees
// no hosts. Where all hosts are down, other controllers run it as standbys, which look at the hosts: it
// stays with its leader until one of them sees hosts.
func (s *Seen) held(shard int) bool {
	blind := slices.ContainsFunc(s.Members, func(m Member) bool { return slices.Contains(m.Blind, shard) })
	return slices.Contains(s.Led, shard) && (!blind || s.visible(shard, ""))
}

// visible reports whether another member than that with an ID sees hosts of a shard. Less than half of
// them are enough: the others may be down for all members.
func (s *Seen) visible(shard int, id string) bool {
	return slices.ContainsFunc(s.Members, func(m Member) bool { return m.ID != id && m.sees(shard) })
}

// sees reports whether a member runs a shard and sees hosts of it.
func (m *Member) sees(shard int) bool {
	return slices.Contains(m.Seeing, shard) || slices.Contains(m.Ready, shard)
}
