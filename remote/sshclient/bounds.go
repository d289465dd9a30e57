package sshclient

import (
	"context"
	"sync"
)

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
