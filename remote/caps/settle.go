package caps

import (
	"maps"
	"slices"

	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/snapshot"
)

// settler remembers what shards may still be taking because of earlier decisions, so that the judge doesn't take
// something else from the same user at the same time. It is pure.
type settler struct {
	epoch uint64 // of the judge
	// sent are the decisions that each shard may still use, in their order.
	sent map[int][]sent
	// forgotten is up to which number decisions to a shard were forgotten, unseen.
	forgotten map[int]uint64
}

// sent is what a decision, or several in turn, take from users.
type sent struct {
	stamp stamp // of the last one
	takes map[snapshot.Username][]taking
	again map[snapshot.Username]bool // these may lose something else instead; see holdings.Over.Again
}

type taking struct {
	shard int
	cap   holdings.Cap
	what  holdings.Take // without its cost and time: it is the same when the user gave it back and took it again
}

// going is what users may be losing because of earlier decisions.
type going struct {
	takes   map[snapshot.Username]map[taking]bool
	unknown map[snapshot.Username]bool // these may be losing anything else, too
}

// maxSent is how many decisions to a shard are remembered. One that doesn't say what it has
// seen for so long may use any.
const maxSent = 64

func newSettler(epoch uint64) *settler {
	return &settler{epoch: epoch, sent: make(map[int][]sent), forgotten: make(map[int]uint64)}
}

// mayGo is what the shards may be taking.
func (s *settler) mayGo(list []shardHeld) *going {
	g := &going{make(map[snapshot.Username]map[taking]bool), make(map[snapshot.Username]bool)}
	for i := range list {
		s.collect(&list[i], g)
	}
	return g
}

// of is for holdings.Rules, with the shards in list.
func (g *going) of(list []shardHeld) func(snapshot.Username, int, holdings.Cap, holdings.Take) bool {
	return func(user snapshot.Username, shard int, c holdings.Cap, t holdings.Take) bool {
		return g.takes[user][takingOf(list[shard].number, c, t)]
	}
}

// settle marks users as Settling, and not due, who may be losing something else already. The decisions are
// those of the shards with the same index in list.
func (g *going) settle(list []shardHeld, decisions []holdings.Decision) {
	planned := make(map[snapshot.Username]map[taking]bool)
	for i := range decisions {
		for user, takes := range takesOf(list[i].number, &decisions[i]) {
			add(planned, user, takes)
		}
	}
	for user, takes := range planned {
		if !isSubset(g.takes[user], takes) && !isSubset(takes, g.takes[user]) {
			g.unknown[user] = true
		}
	}
	for o := range allOver(decisions) {
		if g.unknown[o.User] {
			postpone(o)
		}
	}
}

// collect adds what a shard may be taking, and who holds something where that isn't known.
func (s *settler) collect(one *shardHeld, g *going) {
	if one.Seen.Epoch != s.epoch || one.Seen.Number < s.forgotten[one.number] {
		for i := range one.Users {
			g.unknown[one.Users[i].Name] = true
		}
		return
	}
	s.sent[one.number] = slices.DeleteFunc(s.sent[one.number], func(t sent) bool { return t.stamp.before(one.Seen) })
	remaining := one.Remaining()
	for _, t := range s.sent[one.number] {
		for user, takes := range t.takes {
			held := slices.DeleteFunc(slices.Clone(takes), func(t taking) bool { return !remaining.Holds(user, t.cap, t.what) })
			add(g.takes, user, held)
			g.unknown[user] = g.unknown[user] || t.again[user] && len(held) < len(takes)
		}
	}
}

// noteSent remembers what is sent to a shard.
func (s *settler) noteSent(shard int, number stamp, d *holdings.Decision) {
	list, takes, again := s.sent[shard], takesOf(shard, d), againOf(d)
	if last := len(list) - 1; last >= 0 && maps.Equal(list[last].again, again) && maps.EqualFunc(list[last].takes, takes, slices.Equal[[]taking]) {
		list[last].stamp = number
		return
	}
	list = append(list, sent{number, takes, again})
	if len(list) > maxSent {
		s.forgotten[shard] = list[0].stamp.Number + 1
		list = list[1:]
	}
	s.sent[shard] = list
}

func takesOf(shard int, d *holdings.Decision) map[snapshot.Username][]taking {
	all := make(map[snapshot.Username][]taking)
	for _, o := range d.Over {
		for _, t := range o.Takes {
			if o.Due {
				all[o.User] = append(all[o.User], takingOf(shard, o.Cap, t))
			}
		}
	}
	return all
}

func againOf(d *holdings.Decision) map[snapshot.Username]bool {
	all := make(map[snapshot.Username]bool)
	for _, o := range d.Over {
		if o.Due && o.Again {
			all[o.User] = true
		}
	}
	return all
}

func takingOf(shard int, c holdings.Cap, t holdings.Take) taking {
	return taking{shard, c, holdings.Take{Host: t.Host, Device: t.Device, EID: t.EID}}
}

func add(all map[snapshot.Username]map[taking]bool, user snapshot.Username, takes []taking) {
	if all[user] == nil {
		all[user] = make(map[taking]bool)
	}
	for _, t := range takes {
		all[user][t] = true
	}
}

func isSubset(small, large map[taking]bool) bool {
	for t := range small {
		if !large[t] {
			return false
		}
	}
	return true
}
