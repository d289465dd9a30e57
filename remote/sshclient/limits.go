package sshclient

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// jitter is 75 to 125 per cent of d, so that many waits don't end together.
func jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1) //nolint:gosec // spreads load, guards no secret
}

// dialLimits limit the logins under way, by the name of an address or jump host.
type dialLimits struct {
	mu    sync.Mutex
	slots map[string]chan struct{}
}

func newDialLimits() *dialLimits { return &dialLimits{slots: map[string]chan struct{}{}} }

// acquire waits for a slot and returns how to release it.
func (b *dialLimits) acquire(ctx context.Context, name string, limit int) (release func(), err error) {
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
