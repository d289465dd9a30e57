package shards

import (
	"slices"
	"time"
)

// Member is a controller that takes shards.
type Member struct {
	ID   string // the same after a restart
	Name string // for people
	// Count is into how many shards it divides the hosts.
	Count int
	// Ready are the shards that it runs and of which at least half of the hosts answer: it leads
	// them, or can at once.
	Ready []int
	// Left are the shards that it leaves alone, since most of their hosts refused it.
	Left []int
	// Blind are the shards that it runs and of which no host has answered for a while.
	Blind []int
	// Seeing are the shards that it runs and of which at least one host answers; none from an older version.
	Seeing []int
	// Joined grows when it is started again.
	Joined uint64
}

// Seen is what etcd says.
type Seen struct {
	Members []Member // those that live, this one among them
	// Led are the shards that have a leader.
	Led []int
}

const (
	// vacantFor is after how long without a leader the next controller in the ranking takes a
	// shard, and so on: the first one may live and yet not be able to act.
	vacantFor = 10 * time.Second
	// keptFor is how long a controller at least keeps what it took so, or until the first one is
	// started again.
	keptFor = 5 * time.Minute
)

// Placement decides which shards a controller runs. It has no clock.
type Placement struct {
	Self  string // its ID
	Count int

	shards map[int]*place
}

// place is what is known about a shard.
type place struct {
	runs   bool
	vacant time.Duration // since when there is no leader that sees the hosts, as far as is known
	held   bool          // there is one
	yields yields
	took   *took // it isn't the first one, and took the shard since the first one did not; nil otherwise
}

type took struct {
	at      time.Duration
	instead Member
}

// Decide returns which shards to run, from what is seen now. If this controller isn't among the
// members, which it can't know while etcd doesn't answer, it goes on with those that it runs.
func (p *Placement) Decide(now time.Duration, seen *Seen) (run []int) {
	if p.shards == nil {
		p.shards = make(map[int]*place, p.Count)
	}
	ids := make([]string, len(seen.Members))
	byID := make(map[string]*Member, len(ids))
	for i := range seen.Members {
		ids[i] = seen.Members[i].ID
		byID[ids[i]] = &seen.Members[i]
	}
	for shard := range p.Count {
		at := p.shards[shard]
		if at == nil {
			at = &place{vacant: now}
			p.shards[shard] = at
		}
		held := seen.held(shard)
		if held || at.held {
			at.vacant = now
		}
		at.held = held
		if self := byID[p.Self]; self != nil {
			ranking := Ranking(shard, ids)
			at.yields.decide(now, at.runs, shard, self, seen)
			at.decide(now, shard, slices.Index(ranking, p.Self), byID[ranking[0]])
		}
		if at.runs {
			run = append(run, shard)
		}
	}
	return run
}

// decide says whether to run a shard, of which first should have it.
func (at *place) decide(now time.Duration, shard, rank int, first *Member) {
	switch {
	case at.yields.since != nil:
		at.runs, at.took = false, nil
	case rank == 0:
		at.runs, at.took = true, nil
	case at.runs:
		kept := at.took != nil && now-at.took.at < keptFor && at.took.instead.ID == first.ID && at.took.instead.Joined == first.Joined
		if !kept && slices.Contains(first.Ready, shard) {
			at.runs, at.took = false, nil
		}
	case now-at.vacant >= time.Duration(rank)*vacantFor:
		at.runs, at.took = true, &took{now, *first}
	}
}
