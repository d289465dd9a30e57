package enforcement

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/remote/caps"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/shards"
	"github.com/seed-3119e985/genv/snapshot"
)

// Division says how the hosts are divided among controllers.
type Division struct {
	Key   string // of all controllers in etcd
	Shard int    // of this one
	Hosts []int  // how many each shard has
	Order map[snapshot.Hostname]int
}

// sharedCaps is a run's part in applying the caps of users together with other controllers.
type sharedCaps struct {
	member *caps.Member
	judge  *caps.Judge
	setup  atomic.Pointer[Setup] // the last one
	trouble
}

// shareCaps begins to apply caps with the others, until ctx ends; without shards it does nothing.
func (l *loop) shareCaps(ctx context.Context, setup *Setup, self election.Candidate) {
	if setup.Division == nil {
		return
	}
	s, p, division := &sharedCaps{}, l.part, setup.Division
	s.setup.Store(setup)
	epochOf := func(e *election.Elector) func() uint64 {
		return func() uint64 { return actingEpoch(e.Status()) }
	}
	guard := func(shard int) string { return election.LeaderKey(shards.Key(division.Key, shard)) }
	s.member = caps.NewMember(caps.MemberOptions{
		Store: p.Store, Key: division.Key, Number: division.Shard, Guard: guard(division.Shard), Epoch: epochOf(p.Elector),
		Order: func() map[snapshot.Hostname]int { return s.setup.Load().Division.Order }, Every: setup.Interval, Clock: p.Clock,
	})
	elector := p.Campaign(caps.JudgeKey(division.Key), self)
	s.judge = caps.NewJudge(caps.JudgeOptions{
		Store: p.Store, Key: division.Key, Shards: len(division.Hosts), Guard: guard, Clock: p.Clock,
		Hosts: func(shard int) int { return s.setup.Load().Division.Hosts[shard] },
		Rules: func() holdings.Rules { return s.rules(l.program.Now()) },
		Epoch: epochOf(elector),
	})
	for _, run := range []func(context.Context){s.member.Run, elector.Run, s.judge.Run} {
		p.work.Go(func() { run(ctx) })
	}
	l.caps = s
}

func (s *sharedCaps) rules(now time.Time) holdings.Rules {
	return enforce.CapRules(s.setup.Load().policy(), now)
}

// sayCaps says once why caps aren't applied, and that they are again.
func (l *loop) sayCaps() {
	if l.caps != nil {
		l.sayCapsBecause(l.caps.member.Err(), l.caps.judge.Status().Err)
	}
}

func (l *loop) sayCapsBecause(errs ...error) {
	problem, now := "", l.program.Now()
	for _, err := range errs {
		if err != nil {
			problem = err.Error()
		}
	}
	const silent = "etcd doesn't answer" // the election says which members, and why
	if strings.Contains(problem, silent) {
		problem = silent
	}
	switch {
	case !l.caps.turn(problem, now):
	case problem == "":
		l.log.Warn().Msgf("caps per user are applied across shards again, after %s", l.caps.lasted(now))
	default:
		l.log.Warn().Str("etcd", problem).Msg("caps per user are not fully applied across shards")
	}
}
