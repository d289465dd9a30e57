package controller

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller/wake"
	"github.com/seed-3119e985/genv/snapshot"
)

// Schedule says when hosts are asked.
type Schedule struct {
	// Interval is the time between two ticks, at which all hosts are asked: none of them twice at a time. 0 means once.
	Interval time.Duration
	Cycles   int // ends the loop after so many ticks; 0 means never

	// Hangup brings SIGHUP; nil for none. Reload is called for each, when a tick's answers have come, or before the
	// next event. It may Configure the controller.
	Hangup  <-chan os.Signal
	Reload  func()
	Actions *Queue // brings what operators ask for; nil for none
	// Settle is how long outcomes are waited for when ctx ends; 0 is as long as they take. A later Loop has the others.
	Settle time.Duration
	// Step, if set, is called at each tick with 0, and before each wait with its length: then the next call is due.
	Step func(wait time.Duration)
}

func (s *Schedule) step(wait time.Duration) {
	if s.Step != nil {
		s.Step(wait)
	}
}

// Loop enforces until the schedule is over, ctx ends, or each returns an error, which it then returns. each gets what
// was done since a tick, when answers and orders have ended, or at the next tick. When ctx ends, no further order is
// begun, and the outcomes of those under way are waited for.
func Loop(ctx context.Context, c *Controller, s Schedule, each func(Cycle) error) error {
	l := newLoop(ctx, c, s)
	defer l.close()
	for {
		e := l.next(ctx)
		if e.tick {
			if err := l.show(each); err != nil {
				l.learn(e.ended)
				return errors.Join(err, l.finish(ctx, nil))
			}
		}
		if e.reload {
			l.stopListening()
			l.Reload()
		}
		if e.tick {
			l.begin()
		}
		if e.onlyTick() {
			continue
		}
		l.runCycle(ctx, e)
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

// loop brings a Controller the events of a Schedule, one after the other. It belongs to one goroutine.
type loop struct {
	*Controller
	Schedule

	asking asking
	wake   *wake.Watch                // nil for none
	asked  map[snapshot.Hostname]bool // once more since the tick, in a loop that ends

	start, begun time.Time // of the loop, and of the last tick
	tick         time.Time // the next one; zero for none
	due          time.Time // when the next finding is; zero for none
	notBefore    time.Time // the next cycle
	last         bool      // no further tick follows
	shown        bool      // each got what was done since the last tick
}

func newLoop(ctx context.Context, c *Controller, s Schedule) *loop {
	l := &loop{Controller: c, Schedule: s, start: time.Now(), shown: true}
	l.asking.ctx, l.asking.cancel = context.WithCancel(ctx)
	c.fleet = c.fleet.of(c.Hosts)
	c.Memory.restoreCompanions(c.Companions)
	l.tick = l.start
	return l
}

// close ends what runs in the background, and waits for it.
func (l *loop) close() {
	l.stopListening()
	l.asking.cancel()
	l.asking.answers.work.Wait()
	l.background.writer.work.Wait()
}

// Finish waits for the orders that are under way after a Loop that had to Settle, and until the memory is written.
func (c *Controller) Finish(ctx context.Context, each func(Cycle) error) error {
	l := newLoop(ctx, c, Schedule{})
	defer l.close()
	l.shown = true
	return l.finish(ctx, each)
}

// runCycle runs a cycle at an event, and asks hosts again. The next begins after ten times as long, up to mostPause.
func (l *loop) runCycle(ctx context.Context, e *loopEvent) {
	begun := time.Now()
	l.cycle(ctx, e)
	l.notBefore = begun.Add(min(max(leastPause, 10*time.Since(begun)), mostPause))
	if l.last && l.asking.open == 0 {
		l.stopListening() // or what it leads to would have to be waited for, too
	} else if e.complete || l.wake == nil && len(e.answers) > 0 {
		l.listen()
	}
	if !l.DryRun {
		l.askAgain(l.round.Plan.Ask)
	}
	l.round.Plan.Ask = nil
	l.due = time.Time{}
	if l.wake != nil {
		l.due = nextDue(&l.round.Plan, l.Now())
	}
}

// leastPause and mostPause bound the time from one cycle to the next.
const (
	leastPause = 100 * time.Millisecond
	mostPause  = 3 * time.Second
)

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

// begin asks all hosts, at a tick.
func (l *loop) begin() {
	l.step(0)
	l.beginRound()
	l.begun, l.shown, l.asked = time.Now(), false, make(map[snapshot.Hostname]bool)
	l.last = l.Interval == 0 || l.Cycles > 0 && l.round.Number >= l.Cycles
	l.asking.tick(l.Survey, l.Now, l.fleet.round, l.turns())
	l.listen()
	if l.tick = nextStart(l.start, l.begun, l.Interval); l.last {
		l.tick = time.Time{}
	}
}

// isOver reports whether what was begun at the last tick has ended.
func (l *loop) isOver() bool {
	return !l.shown && l.asking.open == 0 && l.background.underWay == 0 && (!l.last || len(l.asking.underWay) == 0)
}

// show passes what was done since the last tick to each, once.
func (l *loop) show(each func(Cycle) error) error {
	if l.shown {
		return nil
	}
	l.shown = true
	return each(l.endRound(time.Since(l.begun)))
}

// finish waits for the orders under way when the loop ends.
func (l *loop) finish(ctx context.Context, each func(Cycle) error) error {
	l.stopListening()
	if l.shown && l.background.underWay == 0 && len(l.round.Results)+len(l.round.Notified) == 0 {
		return nil
	}
	if l.shown {
		l.beginRound()
		l.shown, l.round.Plan = false, enforce.Plan{}
	}
	l.round.Stopped = l.round.judged == 0
	patience := time.NewTimer(l.Settle)
	defer patience.Stop()
	var late <-chan time.Time
	if l.Settle > 0 && ctx.Err() != nil {
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
		each = func(Cycle) error { return nil }
	}
	l.save(ctx, true)
	return l.show(each)
}
