package agent

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// Lease asks hosts for a lease from the next snapshot on. Those that can do it refuse everything of the controllers
// that this one replaced, and everything of this one once it is replaced: that fails with the class remote.Replaced. A
// nil request asks for none, as a Pool does that isn't told so. After another one this controller only looks again:
// hosts take all that comes on a connection for that of the controller that asked for a lease on it, so these end.
func (p *Pool) Lease(r *fence.LeaseRequest) {
	if r != nil {
		asked := *r
		p.lease.Store(&asked)
		return
	}
	if p.lease.Swap(nil) == nil {
		return
	}
	p.Allow(nil)
	leave, err := p.beginCall()
	if err != nil {
		return
	}
	defer leave()
	for _, c := range p.connections() {
		c.mu.Lock()
		c.reset()
		c.mu.Unlock()
	}
}

func (p *Pool) connections() []*Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.conns))
}

// Allow has hosts told, by name, with each snapshot from the next one on, what the policy allows there; nil for
// nothing.
func (p *Pool) Allow(byHost map[snapshot.Hostname]*service.Allowance) { p.allowances.Store(&byHost) }

func (p *Pool) allowance(host string) *service.Allowance {
	if byHost := p.allowances.Load(); byHost != nil {
		return (*byHost)[snapshot.Hostname(host)]
	}
	return nil
}

// leaseFor is the request for a host; nil for none. A host that was taken over once isn't
// taken over again: since then another controller may have done so.
func leaseFor(asked *fence.LeaseRequest, tookOver bool) *fence.LeaseRequest {
	if asked == nil {
		return nil
	}
	r := *asked
	r.TakeOver, r.Back = r.TakeOver && !tookOver, true
	return &r
}

// giveBackWithin is how long hosts have to note that this controller has ended.
const giveBackWithin = time.Second

// GiveBack gives back the leases of the hosts that are connected, so that any controller may follow. A host that
// doesn't hear of it goes on refusing others for a day.
func (p *Pool) GiveBack(ctx context.Context) {
	leave, err := p.beginCall()
	if err != nil {
		return
	}
	defer leave()
	giveBack(ctx, p.connections())
}

func giveBack(ctx context.Context, conns []*Conn) {
	ctx, cancel := context.WithTimeout(ctx, giveBackWithin)
	defer cancel()
	var calls sync.WaitGroup
	for _, c := range conns {
		t, ok := c.current().(*streamTransport)
		if ok && t.stream.Greeting.Can(CapabilityFence) {
			calls.Go(func() { _ = t.call(ctx, RequestGiveBack, struct{}{}, &struct{}{}) })
		}
	}
	calls.Wait()
}
