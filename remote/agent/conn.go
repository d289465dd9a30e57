package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
)

// Conn is the connection to one host, or the attempts to make one. Its mutex is never held during a call.
type Conn struct {
	pool *Pool
	host remote.Host

	mu        sync.Mutex
	transport transport // nil unless it is connected
	since     time.Time // when the transport was made
	asked     bool      // the transport answered a Snapshot
	attempt   *attempt  // running or waiting; nil for none
	failure   error     // why there is no transport; nil before the first attempt
	failing   bool      // the last login failed: it counts in pool.failing
	wanted    time.Time // when a snapshot was last requested
	closed    bool      // the Conn was removed from its Pool
	backoff   remote.Backoff

	tookOver  atomic.Bool // the host admitted this controller's lease
	tokenFlag atomic.Bool // the token is sent as a flag
}

// reconnectWait is how long a call waits for a new connection to a host that was cut off. After an orderly end of genv
// it waits for half of the Timeout.
const reconnectWait = time.Second

func (c *Conn) snapshot(ctx context.Context) (*snapshot.Snapshot, error) {
	t, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	taken, err := c.ask(ctx, t)
	if err != nil && errors.Is(err, errCut) && ctx.Err() == nil {
		// An earlier connection had ended.
		if t, err = c.connected(ctx); err == nil {
			taken, err = c.ask(ctx, t)
		}
	}
	return taken, err
}

// connected returns the transport. It waits for the first login to a host, with Patience. Attempts to reach a lost host
// run in the background, so that dead hosts don't delay others.
func (c *Conn) connected(ctx context.Context) (t transport, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = time.Now()
	if c.closed {
		return nil, c.notInFleet()
	}
	if t = c.transport; t != nil && t.via() != ViaStream && time.Since(c.since) > fallbackAge {
		c.reset()
	}
	if c.transport != nil {
		return c.transport, nil
	}
	if remote.Outdated(c.failure) && c.attempt != nil && c.attempt.waits {
		c.cancelAttempt()
	}
	if c.attempt == nil {
		c.begin(0, nil)
	}
	if err := c.await(ctx, c.attempt); err != nil {
		return nil, err
	}
	switch t = c.transport; {
	case c.closed:
		return nil, c.notInFleet()
	case t == nil:
		return nil, c.failure
	}
	return t, nil
}

func (c *Conn) notInFleet() error {
	return remote.Errorf(remote.Cancelled, "%s is not in the fleet any more", c.host.Name)
}

// await waits for an attempt as long as the host's last failure allows, without c.mu.
func (c *Conn) await(ctx context.Context, a *attempt) error {
	var late <-chan time.Time
	switch {
	case c.failure == nil:
	case errors.Is(c.failure, errCut):
		wait := c.pool.Timeout / 2
		if !errors.Is(c.failure, errHungUp) {
			wait = min(wait, reconnectWait)
		}
		timer := time.NewTimer(wait)
		defer timer.Stop()
		late = timer.C
	default:
		return c.failure
	}
	failure := c.failure
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-a.done:
		return nil
	case <-late:
		return failure
	case <-ctx.Done():
		return notBegun(context.Cause(ctx))
	}
}

func (c *Conn) ask(ctx context.Context, t transport) (taken *snapshot.Snapshot, err error) {
	leave, err := c.pool.enter(ctx, c.pool.logins, t)
	if err != nil {
		return nil, err
	}
	defer leave()
	taken, err = call(ctx, c, t, c.pool.timeOf(t), func(ctx context.Context) (*snapshot.Snapshot, error) {
		return t.Snapshot(ctx, c.host)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = c.asked || err == nil
	return taken, err
}

func (c *Conn) current() (t transport, asked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.transport, c.asked
}

func (c *Conn) streamWith(capability string) (t *streamTransport, connected bool) {
	current, _ := c.current()
	if t, ok := current.(*streamTransport); ok && t.stream.Greeting.Can(capability) {
		return t, true
	}
	return nil, current != nil
}

func (c *Conn) execute(ctx context.Context, o order.Order) (Execution, error) {
	t, asked := c.current()
	if t == nil || !asked {
		return Execution{}, remote.Errorf(remote.Unreachable, "%s was lost before the order was sent", c.host.Name)
	}
	leave, err := c.pool.enter(ctx, c.pool.orders, t)
	if err != nil {
		return Execution{}, err
	}
	defer leave()
	if err := remote.MayBegin(ctx); err != nil {
		return Execution{}, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	return call(ctx, c, t, c.pool.timeFor(t, o),
		func(ctx context.Context) (Execution, error) { return t.Execute(ctx, c.host, o) })
}

func (c *Conn) lose(t transport, why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport != t {
		return // it is lost already
	}
	c.transport, c.failure = nil, why
	c.begin(0, func() { c.discard(t, why) })
}

// discard closes a transport, and the connection under it unless the host only hung up.
func (c *Conn) discard(t transport, why error) {
	if !errors.Is(why, errCut) {
		c.pool.Network.Disconnect(c.host)
	}
	t.close()
}

// reset closes the transport, if any, and forgets earlier failures; c.mu is held.
func (c *Conn) reset() {
	if t := c.transport; t != nil {
		c.pool.running.Go(t.close)
	}
	c.transport, c.failure = nil, nil
	c.setFailing(false)
}

// retire is reset after the orders under way; c.mu is held.
func (c *Conn) retire() {
	if t, ok := c.transport.(*streamTransport); ok {
		c.pool.ending.Store(t, true)
		c.pool.running.Go(t.finish)
		c.transport = nil
	}
	c.reset()
}

func (c *Conn) ended(t *streamTransport, why error) {
	c.mu.Lock()
	current := c.transport == t
	if current {
		c.pool.running.Add(1) // before Close, which takes c.mu, waits
	}
	c.mu.Unlock()
	if current {
		defer c.pool.running.Done()
		c.lose(t, t.explain(context.Background(), why))
	}
}

// reconsider closes the transport to a host without `usage serve`, so that the next call looks for it again.
func (c *Conn) reconsider() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport != nil && c.transport.via() != ViaStream {
		c.reset()
	}
}

func (c *Conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelAttempt()
	c.retire()
	c.closed = true
}

func call[T any](ctx context.Context, c *Conn, t transport, limit time.Duration,
	do func(context.Context) (T, error),
) (value T, err error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if value, err = do(limited); err != nil && broken(limited, err) {
		c.lose(t, err)
	}
	return value, err
}

func request[A any](ctx context.Context, c *Conn, t *streamTransport, limit time.Duration, name string,
	body any,
) (A, error) {
	return call(ctx, c, t, limit, func(ctx context.Context) (answer A, err error) {
		err = t.call(ctx, name, func() any { return body }, &answer)
		return answer, err
	})
}

func broken(ctx context.Context, err error) bool {
	switch {
	case errors.Is(err, ErrRefused), errors.Is(err, errAbandoned):
		return false
	case errors.Is(err, ErrNotSent) && (ctx.Err() != nil || remote.MayBegin(ctx) != nil): // it had no turn in time
		return false
	case remote.MayBegin(ctx) != nil && remote.ClassOf(err) == remote.Cancelled: // a command that was not begun
		return false
	case errors.Is(ctx.Err(), context.Canceled):
		return errors.Is(context.Cause(ctx), context.DeadlineExceeded)
	}
	return true
}

func notBegun(cause error) error {
	return remote.Errorf(remote.Cancelled, "stopped before it was begun: %w", cause)
}
