package holdings

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// DecideAlone applies the caps to what the users hold. It returns as well what leaves because
// of each of decision.Over.
func DecideAlone(shard *Shard, rules Rules) (decision Decision, excesses []Excess) {
	d := decider{rules: rules, decided: func(r *capResult) {
		e := r.shards[0].excess
		e.Used = r.held
		excesses = append(excesses, e)
	}}
	d.decide([]*Shard{shard})
	return d.decisions[0], excesses
}

func (d *decider) decide(shards []*Shard) {
	d.decisions = make([]Decision, len(shards))
	missing := d.rules.Missing
	for i, s := range shards {
		remaining := s.Remaining()
		remaining.number = i
		d.remaining = append(d.remaining, remaining)
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
	remaining []*Remaining // of each shard
	decisions []Decision
	decided   func(*capResult) // called for each that is added to the decisions; may be nil
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
	remaining *Remaining
}

func (p part) firstHost() *Host { return &p.remaining.shard.Hosts[p.First] }

// people lists the users in the order in which they appear in the fleet.
func (d *decider) people() []*person {
	var list []*person
	byName := make(map[snapshot.Username]*person)
	for _, remaining := range d.remaining {
		for i := range remaining.shard.Users {
			one := part{&remaining.shard.Users[i], remaining}
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
		r := capResult{cap: c, limit: limit, going: d.rules.Going, shards: make([]shardResult, len(d.remaining))}
		if c == Envs {
			r.judgeEnvs(p)
		} else {
			r.judgeDevices(p)
		}
		if r.held.of(c) > limit {
			d.add(p, &r)
			if d.decided != nil {
				d.decided(&r)
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

// add adds a result to the decisions and, once it is due, marks what leaves because of it.
func (d *decider) add(p *person, r *capResult) {
	due := r.due(p) && !d.paused
	freed, takes := int64(0), 0
	for i := range r.shards {
		freed += r.shards[i].freed
		takes += len(r.shards[i].takes)
	}
	for i := range r.shards {
		s := &r.shards[i]
		d.decisions[i].Over = append(d.decisions[i].Over, Over{
			User: p.name, Cap: r.cap, Limit: r.limit, Due: due, Takes: s.takes,
			Elsewhere: r.held.minus(s.held), FreedElsewhere: freed - s.freed,
			Shown: takes == 0 && p.first.remaining.number == i,
		})
		if due {
			d.remaining[i].Take(&s.excess)
		}
	}
}
