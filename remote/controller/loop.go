package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"time"

	"github.com/seed-3119e985/genv/remote/controller/wake"
)

// LoopOptions say when a Loop asks hosts, and which other events it handles.
type LoopOptions struct {
	// Interval is the time between two ticks, which ask all hosts; 0 for a single tick.
	Interval time.Duration
	Cycles   int // ends the loop with the round of this number, counted over a controller's loops; 0 for no end

	// Hangup brings SIGHUP; nil for none. Reload is called for each one, once all hosts have answered that the last tick
	// asked, or with the next event. It may Configure the controller.
	Hangup  <-chan os.Signal
	Reload  func()
	Actions *Queue // brings the actions of operators; nil for none
	// Drain is how long to wait for outcomes when ctx ends; 0 for as long as they take. The next Loop of the controller
	// learns the others.
	Drain time.Duration
	// Step, if set, feeds a watchdog: its next call comes within wait; 0 for the usual time.
	Step func(wait time.Duration)
}

func (s *LoopOptions) step(wait time.Duration) {
	if s.Step != nil {
		s.Step(wait)
	}
}

// Loop enforces until its ticks are over, ctx ends, or each returns an error, which Loop returns. each gets a round
// when all hosts have answered and no delivery is under way, or at the next tick, or at the end. When ctx ends, Loop
// begins no further order, and waits for the outcomes of those under way.
func Loop(ctx context.Context, c *Controller, s LoopOptions, each func(Round) error) error {
	l := newLoop(ctx, c, s)
	defer l.close()
	for {
		e := l.next(ctx)
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

type loop struct {
	*Controller
	LoopOptions

	asking asking
	timer  *time.Timer // of wait

	start, begun time.Time // of the loop, and of the round
	nextTick     time.Time // zero for none
	due          time.Time // when the next finding is due; zero for none
	notBefore    time.Time // when to judge next, unless it may be sooner
	last         bool      // no further tick follows
	roundOpen    bool      // the round was not shown yet
}

func newLoop(ctx context.Context, c *Controller, s LoopOptions) *loop {
	l := &loop{Controller: c, LoopOptions: s, start: time.Now(), timer: time.NewTimer(0)}
	l.asking.hosts = make(map[string]bool)
	l.asking.ctx, l.asking.cancel = context.WithCancel(ctx)
	c.fleet = c.fleet.of(c.Hosts)
	c.Memory.restoreCompanions(c.Companions)
	l.nextTick = l.start
	return l
}

// close stops asking and listening, and waits for that and the last save.
func (l *loop) close() {
	l.asking.stopListening()
	l.asking.cancel()
	l.asking.answers.work.Wait()
	l.background.writer.work.Wait()
}

// show ends the round, and passes it to each, once.
func (l *loop) show(each func(Round) error) error {
	if !l.roundOpen {
		return nil
	}
	l.roundOpen = false
	return each(l.endRound(time.Since(l.begun)))
}

// endRound gives sinks the round for the last time, and returns it. No later round has its results again.
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

func (l *loop) startTick() {
	l.step(0)
	l.beginRound()
	l.begun, l.roundOpen = time.Now(), true
	l.last = l.Interval == 0 || l.Cycles > 0 && l.round.Number >= l.Cycles
	l.asking.tick(l.Survey, l.Now, l.fleet.askRound, l.Interval)
	l.asking.listen(l.wakeLink(), &l.fleet)
	l.nextTick = nextStart(l.start, l.begun, l.Interval)
	if l.last {
		l.nextTick = time.Time{}
	}
}

// beginRound begins a round. It keeps the results since the last round was shown.
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
	c.fleet.askRound = max(c.fleet.askRound, c.Memory.Rules.Round)
	if c.fleet.askRound == 0 || !c.Memory.ReadOnly {
		c.fleet.askRound++
	}
}

// handle enforces at an event. Then it listens to the hosts that answered, and asks again those that need it.
func (l *loop) handle(ctx context.Context, e *loopEvent) {
	begun := time.Now()
	ask := l.enforce(ctx, e)
	took := time.Since(begun)
	if l.last && l.asking.open == 0 {
		l.asking.stopListening() // or the loop would have to wait for the effects of further events
	} else if e.complete || l.asking.watch == nil && len(e.answers) > 0 {
		l.asking.listen(l.wakeLink(), &l.fleet)
	}
	if !l.DryRun {
		l.asking.askAgain(l.Survey, l.Now, &l.fleet, ask, l.last)
	}
	l.schedule(begun, took)
}

// wakeLink is the link to listen by; nil not to wait for events of hosts.
func (l *loop) wakeLink() wake.Link {
	if link, may := l.Link.(wake.Link); may && l.Interval > 0 && !l.DryRun && !l.StopAtFailure {
		return link
	}
	return nil
}

// isOver reports whether no answer to the tick and no delivery is missing; in the last round no other answer either.
func (l *loop) isOver() bool {
	return l.roundOpen && l.asking.open == 0 && l.background.sending == 0 && (!l.last || len(l.asking.hosts) == 0)
}

func (l *loop) finish(ctx context.Context, each func(Round) error) error {
	l.asking.stopListening()
	if !l.roundOpen && l.background.sending == 0 && len(l.round.Results)+len(l.round.Notified) == 0 {
		return nil
	}
	if !l.roundOpen { // later results are shown in a round of their own
		l.beginRound()
		l.begun, l.roundOpen = time.Now(), true
	}
	l.round.Stopped = l.round.judged == 0
	patience := time.NewTimer(l.Drain)
	defer patience.Stop()
	var late <-chan time.Time
	if l.Drain > 0 && ctx.Err() != nil {
		late = patience.C
	}
	for isLate := false; l.background.sending > 0 && !isLate; {
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

// Finish waits for the deliveries that a Loop left under way after Drain, and until the memory is written.
func (c *Controller) Finish(ctx context.Context, each func(Round) error) error {
	l := newLoop(ctx, c, LoopOptions{})
	defer l.close()
	return l.finish(ctx, each)
}
