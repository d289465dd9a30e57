package shards

import (
	"slices"
	"time"
)

// yieldAfter is for how long another controller must see the hosts of a shard, and this one none of
// them, until this one leaves it the shard. When hosts come back, not all controllers see them at once.
const yieldAfter = 20 * time.Second

// yields says whether a controller leaves a shard to others that see the hosts.
type yields struct {
	worse *time.Duration // since when another one sees the hosts, and this one doesn't; nil if that isn't so
	since *time.Duration // since when it leaves them the shard; nil if it doesn't
}

// decide takes in whether this controller runs the shard and sees no hosts, and whether others are
// ready to lead it.
func (y *yields) decide(now time.Duration, blind, others bool) {
	switch {
	case y.since != nil:
		if !others || now-*y.since >= keptFor {
			y.since = nil
		}
	case !blind || !others:
		y.worse = nil
	case y.worse == nil:
		y.worse = &now
	case now-*y.worse >= yieldAfter:
		y.worse, y.since = nil, &now
	}
}

// held reports whether a shard has a leader, and isn't only known as one of which a controller sees
// no hosts. Where all hosts are down, other controllers run it as standbys, which look at the hosts: it
// stays with its leader until one of them is ready.
func (s *Seen) held(shard int) bool {
	blind := slices.ContainsFunc(s.Members, func(m Member) bool { return slices.Contains(m.Blind, shard) })
	return slices.Contains(s.Led, shard) && (!blind || s.readyBut(shard, ""))
}

// readyBut reports whether another member than that with an ID is ready to lead a shard.
func (s *Seen) readyBut(shard int, id string) bool {
	return slices.ContainsFunc(s.Members, func(m Member) bool { return m.ID != id && slices.Contains(m.Ready, shard) })
}
