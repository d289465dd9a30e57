package controller

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/seed-3119e985/genv/remote/agent"
)

// Schedule says when cycles begin.
type Schedule struct {
	// Interval is the time between the starts of two cycles. A cycle that takes
	// longer is followed by the next multiple of it: cycles neither overlap nor
	// pile up. 0 means once.
	Interval time.Duration
	// Cycles ends the loop after so many; 0 means never.
	Cycles int

	// Hangup brings SIGHUP; nil for none. Reload is called for each, between two
	// cycles. It may Configure the controller.
	Hangup <-chan os.Signal
	Reload func()
	// Actions brings what operators ask for; nil for none. It is carried out while the
	// loop waits for hosts or for the next cycle.
	Actions *Queue
	// Settle is how long the outcomes of orders are waited for when ctx ends; 0 is as long as
	// they take. A Loop of a controller that continues this one has those that come later.
	Settle time.Duration
	// Step, if set, is called before each cycle with 0, and before each wait with its length,
	// also one for orders: a loop that is not stuck gets to the next step.
	Step func(wait time.Duration)
}

// Loop runs cycles until the schedule is over, ctx ends, or each returns an error,
// which it then returns. each is called after every cycle. A cycle does not wait for
// orders until the next one begins. When ctx ends, no order is begun any
// more, and the outcomes of those under way are waited for.
func Loop(ctx context.Context, c *Controller, s Schedule, each func(Cycle) error) error {
	if s.Step == nil {
		s.Step = func(time.Duration) {}
	}
	c.queue, c.interval = s.Actions, s.Interval
	defer func() { c.stopEvents(); c.writer.Wait() }()
	start := time.Now() // carries the monotonic clock: steps of the wall clock do not matter
	for {
		c.number++
		s.Step(0)
		begun := time.Now()
		cycle := c.begin(ctx)
		last := s.Interval == 0 || s.Cycles > 0 && c.number >= s.Cycles // the loop before may have passed it
		var until time.Time
		if last {
			c.stopEvents() // or what they lead to would have to be waited for, too
		} else {
			until = nextStart(start, time.Now(), s.Interval).Add(-s.Interval / 20) // which leaves time to show it
		}
		s.stepForOrders(c, until)
		c.await(ctx, &cycle, until, s.Settle)
		settled := s.Settle > 0 && ctx.Err() != nil
		cycle.Took = time.Since(begun)
		if !cycle.Stopped && c.last.Early == 0 { // otherwise hosts were asked again since
			c.last = &cycle
		}
		c.emit(cycle.AtEnd(), nil)
		if err := each(cycle); err != nil {
			s.stepForOrders(c, time.Time{})
			return errors.Join(err, c.finish(ctx, &cycle, s.Settle, func(Cycle) error { return nil }))
		}
		if last || settled {
			return nil
		}
		if !s.wait(ctx, c, nextStart(start, time.Now(), s.Interval)) { // ctx may have ended while the cycle was shown: then its orders may still be under way
			s.stepForOrders(c, time.Time{})
			return c.finish(ctx, &cycle, s.Settle, each)
		}
	}
}

// Finish waits for the orders that are still under way after a Loop that had to Settle, and until the memory is
// written.
func (c *Controller) Finish(ctx context.Context, each func(Cycle) error) error {
	defer func() { c.writer.Wait() }()
	return c.finish(ctx, &Cycle{}, 0, each)
}

// finish waits for the orders under way when the loop ends after a cycle.
func (c *Controller) finish(ctx context.Context, last *Cycle, settle time.Duration, each func(Cycle) error) error {
	c.stopEvents()
	if c.visits.underWay == 0 && len(c.carried.Results)+len(c.carried.Notified) == 0 {
		return nil
	}
	c.number++
	cycle := Cycle{Run: c.run, Number: c.number, Start: c.Now(), Cluster: last.Cluster, DryRun: c.DryRun, Stopped: true}
	c.takeCarried(&cycle)
	c.await(ctx, &cycle, time.Time{}, settle)
	c.emit(cycle.AtEnd(), nil)
	return each(cycle)
}

// nextStart is the first multiple of interval after start that lies after now.
func nextStart(start, now time.Time, interval time.Duration) time.Time {
	rounds := now.Sub(start)/interval + 1
	return start.Add(rounds * interval)
}

// wait waits until t, and reloads meanwhile when SIGHUP comes. It is false when ctx
// ended first.
func (s *Schedule) wait(ctx context.Context, c *Controller, t time.Time) bool {
	s.stepUntil(t)
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	for {
		select {
		case <-s.Hangup: // first, should all be due at once
			s.Reload()
			continue
		default:
		}
		select {
		case <-ctx.Done():
			return false
		case <-s.Hangup:
			s.Reload()
		case r := <-s.Actions.waiting():
			c.operate(ctx, r)
		case v := <-c.visits.results:
			c.learnAside(ctx, v)
		case looks := <-c.between.wake.Looks():
			c.early(ctx, looks)
		case <-timer.C:
			return ctx.Err() == nil
		}
	}
}

// stepForOrders is Step for the wait for orders that are under way: until a time or, if that is zero, for as
// long as they take.
func (s *Schedule) stepForOrders(c *Controller, until time.Time) {
	switch {
	case c.visits.underWay == 0:
	case until.IsZero():
		s.Step(longestOrders)
	default:
		s.stepUntil(until)
	}
}

// longestOrders is how long orders may take: the grace of their processes, and what hosts need in addition.
const longestOrders = 2 * agent.MaxGrace

// stepUntil is Step for a wait until t, also if that is over.
func (s *Schedule) stepUntil(t time.Time) { s.Step(max(1, time.Until(t))) }

// learnAside learns of a visit that ends between two cycles.
func (c *Controller) learnAside(ctx context.Context, v *visit) {
	c.visits.underWay--
	aside := c.aside()
	c.learn(aside, []*visit{v})
	c.carried.Results = append(c.carried.Results, aside.Results...)
	c.carried.Notified = append(c.carried.Notified, aside.Notified...)
	c.save(ctx, false)
}

// takeCarried gives a cycle what ended between two cycles, which no other one has then.
func (c *Controller) takeCarried(cycle *Cycle) {
	cycle.Results, cycle.Notified, c.carried = c.carried.Results, c.carried.Notified, Cycle{}
}
