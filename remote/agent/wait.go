package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/remote"
)

// WaitRequest waits for an event.
type WaitRequest struct {
	MaxMS int64 `json:"max_ms"` // in milliseconds; the answer comes by then
}

// WaitAnswer ends a wait.
type WaitAnswer struct {
	Woke bool `json:"woke"` // something happened; false if the time is over or another wait began
}

// maxWait is how long a wait takes at most: a host that answers none within that is not reachable any more.
const maxWait = 5 * time.Minute

func (a *Answers) wait(ctx context.Context, request WaitRequest) (WaitAnswer, error) {
	if a.Event == nil {
		return WaitAnswer{}, fmt.Errorf("this host has no request %q", RequestWait)
	}
	most := min(max(request.MaxMS, 0), maxWait.Milliseconds())
	limited, cancel := context.WithTimeout(ctx, time.Duration(most)*time.Millisecond)
	defer cancel()
	err := a.Event(limited)
	if limited.Err() != nil && err != nil {
		return WaitAnswer{}, nil
	}
	return WaitAnswer{Woke: err == nil}, err
}

// ErrNoEvents says that a host does not report when something happens there: it has to be asked at intervals.
var ErrNoEvents = errors.New("the host reports no events")

var errNotAsked = errors.New("the host has not been asked for a snapshot on this connection")

// Await waits until something may have changed on a host since its last snapshot, for some minutes at most. Then done
// is called, once, in a goroutine of its own: woke is false if nothing changed. The error is ErrNoEvents if the genv
// there can't say, and another one if the host isn't connected: a wait is never worth a login.
func (p *Pool) Await(ctx context.Context, host remote.Host, done func(woke bool, err error)) {
	leave, err := p.beginCall()
	if err != nil {
		go done(false, err)
		return
	}
	go func() {
		woke, err := p.conn(host).awaitEvent(ctx)
		leave()
		done(woke, err)
	}()
}

// awaitEvent waits on a connection on which the host was asked for a snapshot.
func (c *Conn) awaitEvent(ctx context.Context) (woke bool, err error) {
	c.mu.Lock()
	current, asked := c.transport, c.asked
	c.mu.Unlock()
	t, ok := current.(*streamTransport)
	switch {
	case !asked || current == nil:
		return false, errNotAsked
	case !ok || !t.stream.Greeting.Can(CapabilityEvents):
		return false, ErrNoEvents
	}
	answer, err := request[WaitAnswer](ctx, c, t, maxWait+c.pool.Timeout, RequestWait,
		WaitRequest{MaxMS: maxWait.Milliseconds()})
	return answer.Woke, err
}
