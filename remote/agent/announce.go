package agent

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/agent/controllers"
	"github.com/seed-3119e985/genv/remote/agent/fence"
)

// announcement is what hosts get to know of this controller.
type announcement struct {
	self  controllers.Controller
	claim *fence.Claim // nil for none
}

// Announce has hosts that can do it note that this controller enforces them, from the next
// snapshot on. A Pool that is not told so only looks. With a claim, hosts that can do it
// refuse everything of the controllers that this one replaced, and everything of this one
// once it is replaced: that fails with the class remote.Replaced.
func (p *Pool) Announce(self controllers.Controller, claim *fence.Claim) {
	p.announced.Store(&announcement{self, claim})
}

// claimFor is the claim for a host; nil for none. A host that was taken over once isn't
// taken over again: since then another controller may have done so.
func (a *announcement) claimFor(tookOver bool) *fence.Claim {
	if a == nil || a.claim == nil {
		return nil
	}
	claim := *a.claim
	claim.TakeOver = claim.TakeOver && !tookOver
	return &claim
}

// announcedClaim is the claim that comes with an announcement.
func (t *streamTransport) announcedClaim(self *announcement) *fence.Claim {
	claim := self.claimFor(t.tookOver.Load())
	if claim != nil {
		claim.Back = t.pool.removed.Load()
	}
	return claim
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

// toAnnounce is what to send to the host about this controller; nil if there is nothing new.
func (t *streamTransport) toAnnounce() *announcement {
	self := t.pool.announced.Load()
	can := t.stream.Greeting.Can
	if self == nil || !can(CapabilityControllers) && !can(CapabilityFence) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if self == t.announced {
		return nil
	}
	return self
}

// learnOfOthers keeps what the host answered to an announcement, which is nil if there was
// none.
func (t *streamTransport) learnOfOthers(self *announcement, others controllers.Answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if self != nil {
		t.announced = self
		t.tookOver.Store(t.can().Fence)
	}
	t.others = others.Bounded()
}
