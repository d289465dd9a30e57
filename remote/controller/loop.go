package controller

import (
	"context"
	"os"
	"time"

	"github.com/seed-3119e985/genv/enforce"
)

// Schedule says how often to turn.
type Schedule struct {
	// Interval is the time between the starts of two cycles. A cycle that takes
	// longer is followed by the next multiple of it: cycles neither overlap nor
	// pile up. 0 means once.
	Interval time.Duration
	// Cycles ends the loop after so many; 0 means never.
	Cycles int

	// Hangup brings SIGHUP; nil for none. Reread is called for each, between
	// two cycles. It may change the controller's hosts, and returns the policy
	// to go on with.
	Hangup <-chan os.Signal
	Reread func(enforce.Policy) enforce.Policy
	// Step, if set, is called before each cycle with 0, and before each wait
	// with its length: a loop that is not stuck gets to the next step.
	Step func(wait time.Duration)
}

// Loop turns until the schedule is over, ctx ends, or each returns an error,
// which it then returns. each is called after every cycle. When ctx ends within
// a cycle, no report is begun any more, and the outcomes of those under way are
// waited for.
func (c *Controller) Loop(ctx context.Context, policy enforce.Policy, s Schedule, each func(Cycle) error) error {
	if s.Step == nil {
		s.Step = func(time.Duration) {}
	}
	start := time.Now() // carries the monotonic clock: steps of the wall clock do not matter
	for number := 1; ; number++ {
		s.Step(0)
		begun := time.Now()
		cycle := c.Cycle(ctx, number, policy)
		cycle.Took = time.Since(begun)
		if err := each(cycle); err != nil {
			return err
		}
		if s.Interval == 0 || number == s.Cycles || ctx.Err() != nil {
			return nil
		}
		var goOn bool
		if policy, goOn = s.wait(ctx, nextStart(start, time.Now(), s.Interval), policy); !goOn {
			return nil
		}
	}
}

// nextStart is the first multiple of interval after start that lies after now.
func nextStart(start, now time.Time, interval time.Duration) time.Time {
	turns := now.Sub(start)/interval + 1
	return start.Add(turns * interval)
}

// wait waits until t, and rereads meanwhile what it is told to. It is false when
// ctx ended first.
func (s *Schedule) wait(ctx context.Context, t time.Time, policy enforce.Policy) (enforce.Policy, bool) {
	s.Step(time.Until(t))
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	for {
		select {
		case <-s.Hangup: // first, should all be due at once
			policy = s.Reread(policy)
			continue
		default:
		}
		select {
		case <-ctx.Done():
			return policy, false
		case <-s.Hangup:
			policy = s.Reread(policy)
		case <-timer.C:
			return policy, ctx.Err() == nil
		}
	}
}
