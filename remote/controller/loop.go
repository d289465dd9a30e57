package controller

import (
	"context"
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
}

// Loop turns until the schedule is over, ctx ends, or each returns an error,
// which it then returns. each is called after every cycle.
func (c *Controller) Loop(ctx context.Context, policy enforce.Policy, s Schedule, each func(Cycle) error) error {
	start := time.Now() // carries the monotonic clock: steps of the wall clock do not matter
	for number := 1; ; number++ {
		if err := each(c.Cycle(ctx, number, policy)); err != nil {
			return err
		}
		if s.Interval == 0 || number == s.Cycles {
			return nil
		}
		if !sleepUntil(ctx, nextStart(start, time.Now(), s.Interval)) {
			return nil
		}
	}
}

// nextStart is the first multiple of interval after start that lies after now.
func nextStart(start, now time.Time, interval time.Duration) time.Time {
	turns := now.Sub(start)/interval + 1
	return start.Add(turns * interval)
}

// sleepUntil is false when ctx ended first.
func sleepUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
