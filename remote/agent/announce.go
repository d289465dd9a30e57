package agent

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// Announce has hosts that can do it refuse everything of the controllers that this one, with
// its claim, replaced, and everything of this one once it is replaced: that fails with the class
// remote.Replaced. Hosts hear of it with the next snapshot. A nil claim claims nothing, as a
// Pool does that isn't told so.
func (p *Pool) Announce(claim *fence.Claim) {
	if claim != nil {
		announced := *claim
		claim = &announced
	}
	p.announced.Store(claim)
}

// Allow has hosts told, with each snapshot from the next one on, how many GPUs the policy allows users; nil
// for nothing. One that hasn't changed should be the same value.
func (p *Pool) Allow(a *service.Allowance) { p.allowance.Store(a) }

// claimFor is a claim for a host; nil for none. A host that was taken over once isn't
// taken over again: since then another controller may have done so.
func claimFor(announced *fence.Claim, tookOver bool) *fence.Claim {
	if announced == nil {
		return nil
	}
	claim := *announced
	claim.TakeOver = claim.TakeOver && !tookOver
	return &claim
}

// releaseWithin is how long hosts have to note that this controller has ended.
const releaseWithin = time.Second

// Release has the hosts that are connected note that this controller has ended, so that one
// with another claim may follow. A host that doesn't hear of it goes on refusing others.
func (p *Pool) Release(ctx context.Context) {
	leave, err := p.beginCall()
	if err != nil {
		return
	}
	defer leave()
	p.mu.Lock()
	conns := slices.Collect(maps.Values(p.conns))
	p.mu.Unlock()
	release(ctx, conns)
}

// release releases the hosts of connections.
func release(ctx context.Context, conns []*Conn) {
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	var calls sync.WaitGroup
	for _, c := range conns {
		c.mu.Lock()
		t, ok := c.transport.(*streamTransport)
		c.mu.Unlock()
		if ok && t.stream.Greeting.Can(CapabilityFence) {
			calls.Go(func() { _ = t.call(ctx, RequestRelease, struct{}{}, &struct{}{}) })
		}
	}
	calls.Wait()
}

// Withdraw ends what Announce began: this controller only looks again. A host takes all that
// comes on a connection for that of the controller that was announced on it, so these end.
func (p *Pool) Withdraw() {
	leave, err := p.beginCall()
	if err != nil {
		return
	}
	defer leave()
	p.Allow(nil)
	if p.announced.Swap(nil) == nil {
		return
	}
	p.mu.Lock()
	conns := slices.Collect(maps.Values(p.conns))
	p.mu.Unlock()
	for _, c := range conns {
		c.mu.Lock()
		c.reset()
		c.mu.Unlock()
	}
}

// toAnnounce is the claim to send to the host; nil if there is nothing new.
func (t *streamTransport) toAnnounce() *fence.Claim {
	claim := t.pool.announced.Load()
	if claim == nil || !t.can().Fence {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if claim == t.announced {
		return nil
	}
	return claim
}

// hasNoted keeps that the host answered to a claim, if it isn't nil.
func (t *streamTransport) hasNoted(claim *fence.Claim) {
	if claim == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.announced = claim
	t.tookOver.Store(true)
}
