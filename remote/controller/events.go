package controller

import (
	"context"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

// loopEvent is what has come in since the last event.
type loopEvent struct {
	tick     bool // ask all hosts
	reload   bool
	answers  []hostAnswer
	complete bool // with its answers all hosts have answered or failed that were asked at the last tick
	ended    []*Delivery
	actions  []*pendingAction

	urgent bool          // an answer shows a change, or the last tick did not ask for it
	sooner time.Duration // mostSooner if an answer shows more use of GPUs, or was asked for again, or at an earlier tick
	first  time.Time     // when the first of answers came
}

func (e *loopEvent) onlyTick() bool {
	return e.tick && !e.reload && !e.complete && len(e.answers)+len(e.ended)+len(e.actions) == 0
}

func (l *loop) next(ctx context.Context) *loopEvent {
	e := new(loopEvent)
	for {
		now := time.Now()
		// Answers and actions are handled before a tick.
		e.tick = ctx.Err() == nil && len(e.actions)+len(e.answers) == 0 && !e.complete && l.takeTick(now)
		at := l.readyAt(e, now)
		if ctx.Err() != nil || !at.IsZero() && !at.After(now) {
			return e
		}
		l.wait(ctx, e, at)
	}
}

// takeTick reports whether it is time for a tick. It skips a tick while all hosts are still being asked, or while
// answers that are judged together are missing.
func (l *loop) takeTick(now time.Time) bool {
	if l.nextTick.IsZero() || now.Before(l.nextTick) {
		return false
	}
	awaitsAll := l.DryRun || l.StopAtFailure || l.round.judged == 0 || now.Sub(l.begun) < mostWait
	canAsk := slices.ContainsFunc(l.Hosts, func(h remote.Host) bool {
		_, asked := l.asking.hosts[h.Name]
		return !asked
	})
	if len(l.Hosts) > 0 && (!canAsk || awaitsAll && l.asking.open > 0) {
		l.nextTick = nextStart(l.start, now, l.Interval)
		return false
	}
	return true
}

// nextStart is the first time after now that is a multiple of interval after start.
func nextStart(start, now time.Time, interval time.Duration) time.Time {
	rounds := now.Sub(start)/max(interval, 1) + 1
	return start.Add(rounds * interval)
}

// mostWait is how long an answer waits for others: it is still fresh then.
const mostWait = enforce.FreshFor * 9 / 10

// readyAt is when to handle an event if nothing else comes in; zero for never. Answers of a tick are judged together,
// since limits hold for all of them. But they wait at most mostWait for the others, and not at all if one is urgent.
func (l *loop) readyAt(e *loopEvent, now time.Time) time.Time {
	if e.tick || len(e.actions) > 0 || e.reload && l.asking.open == 0 {
		return now
	}
	at := l.due
	if len(e.answers) > 0 {
		at = soonest(at, e.first.Add(mostWait))
	}
	if len(e.ended) > 0 || e.complete || e.urgent {
		at = now
	}
	if at.IsZero() {
		return at
	}
	return judging.Later(at, l.notBefore.Add(-e.sooner))
}

func (l *loop) wait(ctx context.Context, e *loopEvent, until time.Time) {
	if !e.complete && len(e.answers) == 0 {
		until = soonest(until, l.nextTick)
	}
	l.timer.Stop()
	if !until.IsZero() {
		l.timer.Reset(time.Until(until))
	}
	l.stepWait()
	hangup := l.Hangup
	if e.reload {
		hangup = nil
	}
	select {
	case <-ctx.Done():
	case <-l.timer.C:
	case <-l.asking.answers.ready():
		l.take(e, l.asking.answers.take())
	case looks := <-l.asking.watch.Looks():
		for _, look := range looks {
			l.add(e, hostAnswer{
				name: look.Host.Name, askedAt: l.Now().Add(-time.Since(look.Asked)), came: look.Came,
				took: look.Came.Sub(look.Asked), askRound: l.fleet.askRound, snapshot: look.Snapshot,
			})
			e.urgent = true
		}
	case <-l.background.ended.ready():
		e.ended = append(e.ended, l.background.take()...)
	case r := <-l.Actions.waiting():
		e.actions = append(e.actions, r)
	case <-hangup:
		e.reload = true
	}
}

// soonest is the earlier of two times. A zero time doesn't count.
func soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// longestOrders is how long orders may take: the grace period of processes, and as long for the rest.
const longestOrders = 2 * order.MaxGrace

// stepWait tells the watchdog how long it may take until the next event.
func (l *loop) stepWait() {
	switch {
	case !l.nextTick.IsZero():
		l.step(max(1, time.Until(l.nextTick)))
	case l.background.sending > 0:
		l.step(longestOrders)
	default:
		l.step(0)
	}
}

func (l *loop) take(e *loopEvent, answers []hostAnswer) {
	for _, a := range answers {
		if l.asking.noteAnswer(&a) {
			e.complete = l.asking.open == 0
		} else { // a judgement asked for it, or an earlier tick
			e.urgent, e.sooner = true, mostSooner
		}
		l.add(e, a)
	}
}

func (l *loop) add(e *loopEvent, a hostAnswer) {
	if len(e.answers) == 0 {
		e.answers = make([]hostAnswer, 0, l.asking.open+1)
	}
	e.answers, e.first = append(e.answers, a), soonest(e.first, a.came)
	if last := l.fleet.lastOf(a.name); a.err == nil && last != nil && last != a.snapshot {
		other, more := watch.Change(last, a.snapshot)
		if e.urgent = e.urgent || other; more {
			e.sooner = mostSooner
		}
	}
}

// leastPause and mostPause bound how long a judgement waits after the start of another one. By up to mostSooner it may
// start sooner. So a violation rarely waits, and there are at most ten judgements a second on average. Actions don't
// wait.
const (
	leastPause = 100 * time.Millisecond
	mostPause  = 3 * time.Second
	mostSooner = time.Second
)

// schedule sets when to judge next: ten times as long after begun as this judgement took, within leastPause and
// mostPause. If this one began before its time, the pause counts from that time, or from begun+mostSooner if sooner.
func (l *loop) schedule(begun time.Time, took time.Duration) {
	l.notBefore = soonest(judging.Later(l.notBefore, begun), begun.Add(mostSooner)).
		Add(min(max(leastPause, 10*took), mostPause))
	l.due = time.Time{}
	if l.asking.watch != nil { // else due findings wait for the next tick
		l.due = nextDue(&l.round.Plan, l.Now())
	}
}

// nextDue is when the first pending finding is due; zero for none.
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
