package agent

import (
	"context"
	"errors"
	"time"
)

// callLimit is the deadline of a call, or else how long it may take once it has
// its turn.
type callLimit struct {
	until time.Time
	limit time.Duration
}

// call makes a call on a transport, and loses the transport if the call shows that
// it is broken. Commands wait for their turn first.
func (c *Conn) call(ctx context.Context, t transport, l callLimit, do func(context.Context) error) error {
	if t.via() != ViaStream {
		leave, err := c.pool.logins.enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
		l.until = time.Time{}
	}
	if l.until.IsZero() {
		l.until = time.Now().Add(l.limit)
	}
	limited, cancel := context.WithDeadline(ctx, l.until)
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
		return !t.capabilities().Parallel
	}
	return true
}

// count notes that a call on the transport begins (1) or ends (-1).
func (c *Conn) count(t transport, change int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport != t {
		return
	}
	c.calls += change
	c.state = StateReady
	if c.calls > 0 {
		c.state = StateAsking
	}
}
