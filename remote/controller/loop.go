package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller/wake"
)

// LoopOptions say when hosts are asked, and what else a Loop listens to.
type LoopOptions struct {
	// Interval is the time between two ticks, at which all hosts are asked: none of them twice at a time. 0 means once.
	Interval time.Duration
	Cycles   int // ends the loop after so many ticks; 0 means never

	// Hangup brings SIGHUP; nil for none. Reload is called for each, when a tick's answers have come, or before the
	// next event. It may Configure the controller.
	Hangup  <-chan os.Signal
	Reload  func()
	Actions *Queue // brings what operators ask for; nil for none
	// Drain is how long outcomes are waited for when ctx ends; 0 is as long as they take. The next Loop of the controller
	// learns the others.
	Drain time.Duration
	// Step, if set, feeds a watchdog: until its next call it takes as long as wait; 0 for the usual time.
	Step func(wait time.Duration)
}

func (s *LoopOptions) step(wait time.Duration) {
	if s.Step != nil {
		s.Step(wait)
	}
}

// Loop enforces until the schedule is over, ctx ends, or each returns an error, which it then returns. each gets what
// was done since a tick, when answers and orders have ended, or at the next tick. When ctx ends, no further order is
// begun, and the outcomes of those under way are waited for.
func Loop(ctx context.Context, c *Controller, s LoopOptions, each func(Round) error) error {
	l := newLoop(ctx, c, s)
	defer l.close()
	for {
		e := l.next(ctx) // a tick, answers, a time that is over, actions, deliveries that ended, a reload
		if e.tick {
			if err := l.show(each); err != nil {
				l.learn(e.ended) // finish waits for the others
				return errors.Join(err, l.finish(ctx, nil))
			}
		}
		if e.reload {
			l.asking.stopListening()
			l.Reload()
			l.Memory.restoreCompanions(l.Companions)
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

// loop brings a Controller the events that LoopOptions name, one after the other. It belongs to one goroutine.
type loop struct {
	*Controller
	LoopOptions

	asking asking
	timer  *time.Timer // of wait

	start, begun time.Time // of the loop, and of the last tick
	tick         time.Time // the next one; zero for none
	due          time.Time // when the next finding is; zero for none
	notBefore    time.Time // the next judgement, unless it may be sooner
	last         bool      // no further tick follows
	shown        bool      // what was done since the last tick was shown
}

func newLoop(ctx context.Context, c *Controller, s LoopOptions) *loop {
	l := &loop{Controller: c, LoopOptions: s, start: time.Now(), shown: true, timer: time.NewTimer(0)}
	l.asking.hosts = make(map[string]bool)
	l.asking.ctx, l.asking.cancel = context.WithCancel(ctx)
	c.fleet = c.fleet.of(c.Hosts)
	c.Memory.restoreCompanions(c.Companions)
	l.tick = l.start
	return l
}

// close ends asking and listening, and waits until they and the last save have ended.
func (l *loop) close() {
	l.asking.stopListening()
	l.asking.cancel()
	l.asking.answers.work.Wait()
	l.background.writer.work.Wait()
}

// show shows what was begun at the last tick, once.
func (l *loop) show(each func(Round) error) error {
	if l.shown {
		return nil
	}
	l.shown = true
	return each(l.endRound(time.Since(l.begun)))
}

// endRound gives sinks the round for the last time, and returns it. What came of deliveries is then in no later round.
func (c *Controller) endRound(took time.Duration) Round {
	round := &c.round
	round.Took, round.UnderWay = took, c.Memory.Rules.UnderWay
	unrecorded := ""
	if round.Unrecorded != nil {
		unrecorded = round.Unrecorded.Error()
	}
	round.RecordChanged, round.unrecorded = unrecorded != round.unrecorded, unrecorded
	ended := round.AtEnd()
	c.emit(ended, nil)
	round.Results, round.Notified, round.Records = nil, nil, nil
	return *ended
}

// startTick begins a round, and asks all hosts.
func (l *loop) startTick() {
	l.step(0)
	l.beginRound()
	l.begun, l.shown = time.Now(), false
	l.last = l.Interval == 0 || l.Cycles > 0 && l.round.Number >= l.Cycles
	l.asking.tick(l.Survey, l.Now, l.fleet.round, l.Interval)
	l.asking.listen(l.wakeLink(), &l.fleet)
	l.tick = nextStart(l.start, l.begun, l.Interval)
	if l.last {
		l.tick = time.Time{}
	}
}

// beginRound begins a round, in which all hosts are asked. What ended since the last one was shown is shown with it.
func (c *Controller) beginRound() {
	before := &c.round
	c.round = Round{
		Standby: c.Policy == nil, Run: before.Run, Number: before.Number + 1, Start: c.Now(), DryRun: c.DryRun,
		Cluster: before.Cluster, Hold: c.Memory.Operator.Hold, Exemptions: c.Memory.Operator.Exemptions,
		Earlier: before.Early, Results: before.Results, Notified: before.Notified, unrecorded: before.unrecorded,
	}
	if c.round.Run == "" {
		c.round.Run = rand.Text()[:8]
	}
	c.fleet.round = max(c.fleet.round, c.Memory.Rules.Round)
	if c.fleet.round == 0 || !c.Memory.ReadOnly {
		c.fleet.round++
	}
}

// handle acts on an event. Then it asks hosts again, and waits for events of those that answered.
func (l *loop) handle(ctx context.Context, e *loopEvent) {
	begun := time.Now()
	ask := l.enforce(ctx, e)
	took := time.Since(begun)
	if l.last && l.asking.open == 0 {
		l.asking.stopListening() // or what it leads to would have to be waited for, too
	} else if e.complete || l.asking.watch == nil && len(e.answers) > 0 {
		l.asking.listen(l.wakeLink(), &l.fleet)
	}
	if !l.DryRun {
		l.asking.askAgain(l.Survey, l.Now, &l.fleet, ask, l.last) // before the loop ends each host once
	}
	l.schedule(begun, took)
}

// wakeLink is how to wait for events of hosts; nil if they are asked at ticks only.
func (l *loop) wakeLink() wake.Link {
	if link, may := l.Link.(wake.Link); may && l.Interval > 0 && !l.DryRun && !l.StopAtFailure {
		return link
	}
	return nil
}

// isOver reports whether what was begun at the last tick has ended.
func (l *loop) isOver() bool {
	return !l.shown && l.asking.open == 0 && l.background.underWay == 0 && (!l.last || len(l.asking.hosts) == 0)
}

// finish waits for the orders under way when the loop ends.
func (l *loop) finish(ctx context.Context, each func(Round) error) error {
	l.asking.stopListening()
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
	l := newLoop(ctx, c, LoopOptions{})
	defer l.close()
	l.shown = true
	return l.finish(ctx, each)
}
