package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Lease asks hosts for a lease with each further snapshot. Hosts that know leases refuse a replaced controller, with
// the class remote.Replaced. nil, the default, asks for none. After another request nil also ends the connections,
// after the orders under way: hosts attribute all requests on a connection to the controller with the lease.
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
		c.retire()
		c.mu.Unlock()
	}
}

func (p *Pool) connections() []*Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.conns))
}

// Allow sends hosts their allowances with the next requests for snapshots, each value once on a connection.
func (p *Pool) Allow(byHost map[snapshot.Hostname]*service.Allowance) { p.allowances.Store(&byHost) }

func (p *Pool) allowance(host string) *service.Allowance {
	if byHost := p.allowances.Load(); byHost != nil {
		return (*byHost)[snapshot.Hostname(host)]
	}
	return nil
}

// leaseFor is the request for a host. It takes over a host once: another controller may have taken it over since.
func leaseFor(asked *fence.LeaseRequest, tookOver bool) *fence.LeaseRequest {
	if asked == nil {
		return nil
	}
	r := *asked
	r.TakeOver, r.Back = r.TakeOver && !tookOver, true
	return &r
}

// GiveBack gives back the leases of connected hosts, so that any controller may follow. Hosts that aren't connected
// refuse other controllers for a day.
func (p *Pool) GiveBack(ctx context.Context) {
	leave, err := p.beginCall()
	if err != nil {
		return
	}
	defer leave()
	giveBack(ctx, p.connections(), false)
}

// giveBack gives back the leases of hosts. On hosts that leave the fleet, orders under way, which need it, end first.
func giveBack(ctx context.Context, conns []*Conn, leave bool) {
	var calls sync.WaitGroup
	for _, c := range conns {
		if t, _ := c.streamWith(CapabilityFence); t != nil && !(leave && t.leavesLater()) {
			calls.Go(func() { t.giveBack(ctx) })
		}
	}
	calls.Wait()
}

func (t *streamTransport) giveBack(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = t.call(ctx, RequestGiveBack, func() any { return struct{}{} }, &struct{}{})
}

// leavesLater reports whether orders are under way. If so, finish gives back the lease after them.
func (t *streamTransport) leavesLater() bool {
	idle := t.orders.TryLock()
	if idle {
		t.orders.Unlock()
	}
	t.leaves.Store(!idle)
	return !idle
}

// Acting says which controller may act on a host.
type Acting struct {
	Lease   *fence.Lease    `json:"noted,omitempty"`         // nil for none
	Unknown string          `json:"noted_unknown,omitempty"` // why the host can't tell, and lets no controller act
	Trial   *snapshot.Trial `json:"trial,omitempty"`         // of what acting needs, made for this answer; nil for none
	Refuses bool            `json:"-"`                       // the host refuses other controllers: it gives leases
}

func (a *Answers) acting(ctx context.Context, _ struct{}) (answer Acting, err error) {
	if a.Fence == nil {
		return answer, nil
	}
	if answer.Lease, err = a.Fence.Given(); err != nil {
		answer = Acting{Unknown: err.Error()}
	}
	if a.Try != nil {
		answer.Trial = a.Try(ctx)
	}
	return answer, nil
}

func (a Acting) bounded() Acting {
	const maxUnknown = 256 // bytes
	b := Acting{Unknown: text.Cut(a.Unknown, maxUnknown), Trial: a.Trial.Bounded(), Refuses: true}
	if a.Lease != nil && a.Lease.Check() == nil {
		b.Lease = a.Lease
	}
	return b
}

// Acting asks a host which controller acts there. The class of the error is remote.Version if its genv is too old.
func (p *Pool) Acting(ctx context.Context, host remote.Host) (Acting, error) {
	return onConn(p, host, func(c *Conn) (answer Acting, err error) {
		t, err := c.connected(ctx)
		stream, ok := t.(*streamTransport)
		switch {
		case err != nil || !ok || !stream.stream.Greeting.Can(CapabilityFence):
			return answer, err
		case !stream.stream.Greeting.Can(RequestActing):
			return answer, remote.Errorf(remote.Version, "the genv there is too old to say which controller acts")
		}
		answer, err = request[Acting](ctx, c, stream, p.Timeout, RequestActing, struct{}{})
		return answer.bounded(), err
	})
}

// AskOnce is the input for a `genv usage serve` that gets one request, RequestActing. ReadOnce reads its output.
func AskOnce(token string) []byte {
	f := frame.Frame{Kind: frame.KindRequest, Name: RequestActing, ID: 1, Body: []byte("{}")}
	return f.Append([]byte(token + "\n"))
}

// ReadOnce reads the output after AskOnce. The trial is nil if there was none.
func ReadOnce(output io.Reader, token string) (*frame.Greeting, *snapshot.Trial, error) {
	in := bufio.NewReader(output)
	greeting, err := frame.ReadGreeting(in, token)
	if err != nil {
		return nil, nil, fmt.Errorf("genv does not greet: %w", err)
	}
	var answer Acting
	if f, err := frame.Read(in); err == nil && f.Kind == frame.KindAnswer && json.Unmarshal(f.Body, &answer) == nil {
		return &greeting, answer.Trial.Bounded(), nil
	}
	return &greeting, nil, nil
}
