package caps

import (
	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/snapshot"
)

// overSince remembers by which decision users were found over their caps, without a break since then.
type overSince map[userCap]stamp

type userCap struct {
	user snapshot.Username
	cap  holdings.Cap
}

// looks are how a user's hosts were looked at: in how many shards, and which decision all of
// these knew already when they did.
type looks struct {
	shards int
	knew   stamp
}

// awaitLooks marks users as Settling, and not due, until all shards in which they hold something have
// looked at their hosts after the user was found over the cap. Shards look at different times, so one who
// gives something back in one shard and attaches something in another counts twice for a while.
func (s overSince) awaitLooks(list []shardHeld, decisions []holdings.Decision, next stamp) {
	byUser, found := looksAtUsers(list, decisions), make(map[userCap]bool)
	for i := range decisions {
		for k := range decisions[i].Over {
			o := &decisions[i].Over[k]
			key := userCap{o.User, o.Cap}
			if _, before := s[key]; !before {
				s[key] = next
			}
			found[key] = true
			if l := byUser[o.User]; l.shards > 1 && l.knew.before(s[key]) {
				postpone(o)
			}
		}
	}
	for key := range s {
		if !found[key] {
			delete(s, key)
		}
	}
}

// looksAtUsers are those at the users who are over a cap.
func looksAtUsers(list []shardHeld, decisions []holdings.Decision) map[snapshot.Username]*looks {
	byUser := make(map[snapshot.Username]*looks)
	for i := range decisions {
		for k := range decisions[i].Over {
			byUser[decisions[i].Over[k].User] = new(looks)
		}
	}
	for i := range list {
		for k := range list[i].Users {
			if l := byUser[list[i].Users[k].Name]; l != nil {
				if l.shards == 0 || list[i].Seen.before(l.knew) {
					l.knew = list[i].Seen
				}
				l.shards++
			}
		}
	}
	return byUser
}

// postpone has nothing be taken by a decision for now.
func postpone(o *holdings.Over) { o.Settling, o.Due = o.Due || o.Settling, false }
