package holdings

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Decide applies the caps to what the users of all shards hold, and returns a decision for
// each shard. The holdings must pass Shard.Check.
func Decide(shards []*Shard, rules Rules) []Decision {
	d := decider{rules: rules}
	d.decide(shards)
	return d.decisions
}

// DecideAlone is Decide for a shard that is the whole fleet. It returns as well what leaves because
// of each of decision.Over: what Excess finds if they are applied to these holdings one by one.
func DecideAlone(shard *Shard, rules Rules) (decision Decision, excesses []Excess) {
	d := decider{rules: rules, decided: func(v *verdict) {
		e := v.shards[0].excess
		e.Used = v.held
		excesses = append(excesses, e)
	}}
	d.decide([]*Shard{shard})
	return d.decisions[0], excesses
}

func (d *decider) decide(shards []*Shard) {
	d.decisions = make([]Decision, len(shards))
	missing := d.rules.Missing
	for i, s := range shards {
		book := s.Book()
		book.number = i
		d.books = append(d.books, book)
		missing += s.Missing
	}
	d.paused = d.rules.Pause && missing > 0
	for _, p := range d.people() {
		d.decideAbout(p)
	}
	for i := range d.decisions {
		d.decisions[i].Missing = missing
	}
}

type decider struct {
	rules     Rules
	paused    bool
	books     []*Book // of each shard
	decisions []Decision
	decided   func(*verdict) // called for each that is added to the decisions; may be nil
}

// person is a user with what each shard says of the user.
type person struct {
	name  snapshot.Username
	parts []part
	first part // where the user appears first
}

// part is what the user holds in one shard.
type part struct {
	*User
	book *Book
}

func (p part) firstHost() *Host { return &p.book.shard.Hosts[p.First] }

// people lists the users in the order in which they appear in the fleet.
func (d *decider) people() []*person {
	var list []*person
	byName := make(map[snapshot.Username]*person)
	for _, book := range d.books {
		for i := range book.shard.Users {
			one := part{&book.shard.Users[i], book}
			p := byName[one.Name]
			if p == nil {
				p = &person{name: one.Name, first: one}
				byName[one.Name] = p
				list = append(list, p)
			}
			p.parts = append(p.parts, one)
			if one.firstHost().compare(p.first.firstHost()) < 0 {
				p.first = one
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *person) int {
		return cmp.Or(a.first.firstHost().compare(b.first.firstHost()), cmp.Compare(a.first.Rank, b.first.Rank))
	})
	return list
}

func (d *decider) decideAbout(p *person) {
	limits := d.rules.Limits(p.name)
	for c := Envs; c <= Memory; c++ {
		limit, capped := limits.Of(c)
		if !capped || p.most(c) <= limit {
			continue
		}
		v := verdict{cap: c, limit: limit, shards: make([]inShard, len(d.books))}
		if c == Envs {
			v.judgeEnvs(p)
		} else {
			v.judgeDevices(p)
		}
		if v.held.of(c) > limit {
			d.add(p, &v)
			if d.decided != nil {
				d.decided(&v)
			}
		}
	}
}

// most is what the user holds at most, whatever leaves or doesn't count.
func (p *person) most(c Cap) (n int64) {
	for _, one := range p.parts {
		switch c {
		case Envs:
			n += int64(len(one.Envs))
		case Devices:
			n += int64(len(one.Devices))
		default:
			for _, d := range one.Devices {
				n += max(0, d.Bytes)
			}
		}
	}
	return n
}

// add adds a verdict to the decisions and, once it is due, marks what leaves because of it.
func (d *decider) add(p *person, v *verdict) {
	due := v.due(p) && !d.paused
	freed, takes := int64(0), 0
	for i := range v.shards {
		freed += v.shards[i].freed
		takes += len(v.shards[i].takes)
	}
	for i := range v.shards {
		s := &v.shards[i]
		d.decisions[i].Over = append(d.decisions[i].Over, Over{
			User: p.name, Cap: v.cap, Limit: v.limit, Due: due, Takes: s.takes,
			Elsewhere: v.held.minus(s.held), FreedElsewhere: freed - s.freed,
			Shown: takes == 0 && p.first.book.number == i,
		})
		if due {
			d.books[i].Take(&s.excess)
		}
	}
}
