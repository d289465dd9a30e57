package agent

import (
	"context"
	"errors"
	"time"

	"github.com/seed-3119e985/genv/remote"
)

// call makes a call on a transport within a time, and loses the transport if the
// call shows that it is broken.
func call[T any](ctx context.Context, c *Conn, t transport, limit time.Duration, do func(context.Context) (T, error)) (value T, err error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c.calls.Add(1)
	defer c.calls.Add(-1)
	if value, err = do(limited); err != nil && broken(limited, t, err) {
		c.lose(t, err)
	}
	return value, err
}

// broken reports whether a transport can't be used any more after an error.
func broken(ctx context.Context, t transport, err error) bool {
	switch {
	case errors.Is(err, ErrRefused), errors.Is(err, errReporting), errors.Is(err, errAbandoned):
		return false
	case errors.Is(err, ErrNotSent) && (ctx.Err() != nil || remote.MayBegin(ctx) != nil): // it had no turn in time
		return false
	case remote.MayBegin(ctx) != nil && remote.ClassOf(err) == remote.Cancelled: // a command that was not begun
		return false
	case errors.Is(ctx.Err(), context.Canceled):
		return !t.can().Parallel || errors.Is(context.Cause(ctx), context.DeadlineExceeded)
	}
	return true
}

// notBegun is the error of what was to be done when its context ended.
func notBegun(cause error) error {
	return remote.Errorf(remote.Cancelled, "stopped before it was begun: %w", cause)
}
