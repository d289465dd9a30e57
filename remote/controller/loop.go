package controller

import (
	"context"
	"errors"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
)

// Loop enforces until the schedule is over, ctx ends, or each returns an error, which it then returns. each gets what
// was done since a tick, when answers and orders have ended, or at the next tick. When ctx ends, no further order is
// begun, and the outcomes of those under way are waited for.
func Loop(ctx context.Context, c *Controller, s Schedule, each func(Round) error) error {
	l := newLoop(ctx, c, s)
	defer l.close()
	for {
		e := l.next(ctx) // a tick, answers, a time that is over, actions, deliveries that ended
		if e.tick {
			if err := l.show(each); err != nil {
				l.learn(e.ended) // finish waits for the others
				return errors.Join(err, l.finish(ctx, nil))
			}
		}
		if e.reload {
			l.stopListening()
			l.Reload()
		}
		if e.tick {
			l.startTick()
		}
		if e.onlyTick() {
			continue
		}
		l.handle(ctx, e)
		if ctx.Err() != nil {
			return l.finish(ctx, each)
		}
		if l.isOver() {
			if err := l.show(each); err != nil {
				return errors.Join(err, l.finish(ctx, nil))
			}
			if l.last {
				return nil
			}
		}
	}
}

// startTick begins a round, and asks all hosts.
func (l *loop) startTick() {
	l.step(0)
	l.beginRound()
	l.begun, l.shown, l.asked = time.Now(), false, make(map[snapshot.Hostname]bool)
	l.last = l.Interval == 0 || l.Cycles > 0 && l.round.Number >= l.Cycles
	l.asking.tick(l.Survey, l.Now, l.fleet.round, l.turns())
	l.listen()
	l.tick = nextStart(l.start, l.begun, l.Interval)
	if l.last {
		l.tick = time.Time{}
	}
}

// handle judges an event and acts on it, asks hosts again, and sets when to judge next: ten times as long after this
// began as it took, within leastPause and mostPause. After a sooner one that is later, by mostSooner at most.
func (l *loop) handle(ctx context.Context, e *loopEvent) {
	begun := time.Now()
	l.cycle(ctx, e)
	l.notBefore = soonest(judging.Later(l.notBefore, begun), begun.Add(mostSooner)).
		Add(min(max(leastPause, 10*time.Since(begun)), mostPause))
	if l.last && l.asking.open == 0 {
		l.stopListening() // or what it leads to would have to be waited for, too
	} else if e.complete || l.wake == nil && len(e.answers) > 0 {
		l.listen()
	}
	if !l.DryRun {
		l.askAgain(l.round.Plan.Ask)
	}
	l.round.Plan.Ask = nil // an event that isn't judged leaves the plan as it is
	l.due = time.Time{}
	if l.wake != nil { // else what is due waits for the next tick
		l.due = nextDue(&l.round.Plan, l.Now())
	}
}

// nextDue is when the first finding that waits is due; zero for none.
func nextDue(plan *enforce.Plan, now time.Time) time.Time {
	var first time.Time
	for i := range plan.Findings {
		f := &plan.Findings[i]
		if f.Pending && f.Due.After(now) && (first.IsZero() || f.Due.Before(first)) {
			first = f.Due
		}
	}
	if first.IsZero() {
		return first
	}
	return time.Now().Add(first.Sub(now)) // by the monotonic clock
}

// isOver reports whether what was begun at the last tick has ended.
func (l *loop) isOver() bool {
	return !l.shown && l.asking.open == 0 && l.background.underWay == 0 && (!l.last || len(l.asking.underWay) == 0)
}

// show shows what was begun at the last tick, once.
func (l *loop) show(each func(Round) error) error {
	if l.shown {
		return nil
	}
	l.shown = true
	return each(l.endRound(time.Since(l.begun)))
}

// finish waits for the orders under way when the loop ends.
func (l *loop) finish(ctx context.Context, each func(Round) error) error {
	l.stopListening()
	if l.shown && l.background.underWay == 0 && len(l.round.Results)+len(l.round.Notified) == 0 {
		return nil
	}
	if l.shown { // what ends from now on is shown in a round of its own
		l.beginRound()
		l.shown, l.round.Plan = false, enforce.Plan{}
	}
	l.round.Stopped = l.round.judged == 0
	patience := time.NewTimer(l.Drain)
	defer patience.Stop()
	var late <-chan time.Time
	if l.Drain > 0 && ctx.Err() != nil {
		late = patience.C
	}
	for isLate := false; l.background.underWay > 0 && !isLate; {
		l.step(longestOrders)
		select {
		case <-l.background.ended.ready():
			l.learn(l.background.take())
		case <-late:
			isLate = true
		}
	}
	if each == nil {
		each = func(Round) error { return nil }
	}
	l.save(ctx, true)
	return l.show(each)
}

// Finish waits for the orders that a Loop left under way when Drain was over, and until the memory is written.
func (c *Controller) Finish(ctx context.Context, each func(Round) error) error {
	l := newLoop(ctx, c, Schedule{})
	defer l.close()
	l.shown = true
	return l.finish(ctx, each)
}
