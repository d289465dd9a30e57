package caps

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/snapshot"
)

// overSince remembers for how long users have been found over their caps, without a break.
type overSince map[userCap]*stretch

// stretch is the first decision that found it and, once the warnings are over, the first after that; and the
// first by which something was due, zero for none.
type stretch struct {
	first, due stamp
	warned     bool          // the warnings are over
	shards     []int         // in which the user held something when it was found last,
	found      time.Duration // and when that was, by the judge's clock
}

// lasts reports whether the user may be over the cap still, although that isn't found any more: a shard in
// which the user held something is missing, but not for long.
func (s *stretch) lasts(list []shardHeld, now time.Duration) bool {
	return now-s.found <= MaxEvery && slices.ContainsFunc(s.shards, func(shard int) bool {
		return !slices.ContainsFunc(list, func(one shardHeld) bool { return one.number == shard })
	})
}

type userCap struct {
	user snapshot.Username
	cap  holdings.Cap
}

// looks are how a user's hosts were looked at: in which shards, and which decision all of
// these knew already when they did.
type looks struct {
	shards []int
	knew   stamp
}

// awaitLooks marks users as Settling, and not due, until all shards in which they hold something have
// looked at their hosts after the user was found over the cap, and after the warnings were over. Shards look
// at different times, so one who gives something back in one shard and attaches something in another counts
// twice for a while; and one who gives it back in time may not have been seen to.
func (s overSince) awaitLooks(users map[snapshot.Username]*looks, list []shardHeld, decisions []holdings.Decision, next stamp, now time.Duration) {
	for o := range allOver(decisions) {
		key := userCap{o.User, o.Cap}
		if s[key] == nil {
			s[key] = new(stretch)
		}
		since := s[key]
		if since.first == (stamp{}) || o.Due && !since.warned {
			since.first, since.warned = next, o.Due
		}
		since.shards, since.found = users[o.User].shards, now
		if l := users[o.User]; len(l.shards) > 1 && l.knew.before(since.first) {
			postpone(o)
		}
	}
	maps.DeleteFunc(s, func(_ userCap, since *stretch) bool { return since.found != now && !since.lasts(list, now) })
}

// insist has users lose also what they gave back and took again meanwhile, if they are over a cap although all
// shards have looked again since something was due. Who did so between any two cycles would lose nothing otherwise.
func (s overSince) insist(users map[snapshot.Username]*looks, decisions []holdings.Decision, next stamp) {
	for o := range allOver(decisions) {
		since := s[userCap{o.User, o.Cap}]
		if o.Due && since.due == (stamp{}) {
			since.due = next
		}
		o.Again = since.due != stamp{} && !users[o.User].knew.before(since.due)
	}
}

func allOver(decisions []holdings.Decision) iter.Seq[*holdings.Over] {
	return func(yield func(*holdings.Over) bool) {
		for i := range decisions {
			for k := range decisions[i].Over {
				if !yield(&decisions[i].Over[k]) {
					return
				}
			}
		}
	}
}

// looksAtUsers are those at the users who are over a cap.
func looksAtUsers(list []shardHeld, decisions []holdings.Decision) map[snapshot.Username]*looks {
	byUser := make(map[snapshot.Username]*looks)
	for o := range allOver(decisions) {
		byUser[o.User] = new(looks)
	}
	for i := range list {
		for k := range list[i].Users {
			if l := byUser[list[i].Users[k].Name]; l != nil {
				if len(l.shards) == 0 || list[i].Seen.before(l.knew) {
					l.knew = list[i].Seen
				}
				l.shards = append(l.shards, list[i].number)
			}
		}
	}
	return byUser
}

// postpone has nothing be taken by a decision for now.
func postpone(o *holdings.Over) { o.Settling, o.Due = o.Due || o.Settling, false }
