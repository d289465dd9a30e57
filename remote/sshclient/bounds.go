package sshclient

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// jitter spreads what would come at once over 75 to 125 per cent of d.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1) //nolint:gosec // spreads load, guards no secret
}

// bounds are counters by name, each with its limit: how many logins are under
// way to one address.
type bounds struct {
	mu    sync.Mutex
	slots map[string]chan struct{}
}

func newBounds() *bounds { return &bounds{slots: map[string]chan struct{}{}} }

// enter waits for a place and returns how to leave it.
func (b *bounds) enter(ctx context.Context, name string, limit int) (leave func(), err error) {
	b.mu.Lock()
	slots := b.slots[name]
	if slots == nil {
		slots = make(chan struct{}, limit)
		b.slots[name] = slots
	}
	b.mu.Unlock()
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
