package agent

import (
	"context"
	"errors"
	"time"

	"github.com/seed-3119e985/genv/remote"
)

// call makes a call on a transport within a time, and loses the transport if the
// call shows that it is broken. Commands wait for their turn first.
func (c *Conn) call(ctx context.Context, t transport, limit time.Duration, do func(context.Context) error) error {
	if t.via() != ViaStream {
		if err := c.pool.logins.acquire(ctx); err != nil {
			return notBegun(err)
		}
		defer c.pool.logins.release()
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c.count(t, 1)
	err := do(limited)
	c.count(t, -1)
	if err != nil && broken(limited, t, err) {
		c.lose(t, err)
	}
	return err
}

// broken reports whether a transport can't be used any more after an error.
func broken(ctx context.Context, t transport, err error) bool {
	switch {
	case errors.Is(err, ErrRefused), errors.Is(err, ErrCannotNotify):
		return false
	case errors.Is(err, ErrNotSent) && ctx.Err() != nil: // it had no turn in time
		return false
	case errors.Is(ctx.Err(), context.Canceled):
		s, ok := t.(*streamTransport)
		return ok && !s.stream.Greeting.Can(CapabilityParallel)
	}
	return true
}

// count notes that a call on the transport begins (1) or ends (-1).
func (c *Conn) count(t transport, change int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport == t {
		c.calls += change
	}
}

// notBegun is the error of what was to be done when its context ended.
func notBegun(cause error) error {
	return remote.Errorf(remote.Cancelled, "stopped before it was begun: %w", cause)
}
