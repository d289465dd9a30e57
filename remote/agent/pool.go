// Package agent is both ends of the connection between the controller and the genv on a host, which answers requests
// over stdin and stdout of one command, `genv usage serve`: a request costs a message, not a login. docs/protocol.md
// describes the messages.
//
// On a host a Responder answers by a Backend:
//
//	answers := &agent.Answers{Backend: backend}
//	s := &agent.Responder{Token: token, Handler: answers.Handle, Idle: time.Minute}
//	s.Greeting = agent.NewGreeting(version)
//	err := s.Serve(ctx, stdin, stdout)
//
// On the controller a Pool has a Conn for each host:
//
//	pool := &agent.Pool{Start: agent.StartWith(client.Start), Network: client, Timeout: 10 * time.Second}
//	snapshot, err := pool.Snapshot(ctx, host)
//
// A Conn asks by a transport: the stream, one command per request for genv 1.4.3, or read-only by nvidia-smi and /proc
// where there is no genv. An error of the protocol ends the connection, and its message is not used.
//
// Attempts to reach a host that failed are repeated in the background, by a remote.Backoff, for a minute after the last
// request. Only requests for snapshots are repeated, after an orderly end of the connection.
package agent

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// Network reaches hosts; *sshclient.Client is one. It tries once.
type Network interface {
	remote.Runner
	// Peer is the machine that the host's last connection led to; false if there was none.
	Peer(host remote.Host) (remote.Peer, bool)
	// Resolve finds out how to reach a host, for later connections. It may wait for its turn.
	Resolve(ctx context.Context, host remote.Host)
	// Probe checks, without a login, whether a host answers. It returns remote.ErrNoProbe where it can't.
	Probe(ctx context.Context, host remote.Host) error
	// Disconnect closes the connection to a host that doesn't answer.
	Disconnect(host remote.Host)
}

// Pool keeps a connection to every host. Its fields are set before its first use; then it is safe for concurrent use.
type Pool struct {
	Start    Start
	Network  Network
	Timeout  time.Duration // of a request; for orders the grace period of their processes is added
	Patience time.Duration // how long a request waits for the first login to its host; 0 for no limit
	// Fanout bounds how many hosts at a time are logged in to or run commands, and how many commands at a time carry
	// out orders; 0 for no bound. A request on an open connection doesn't wait.
	Fanout int
	// DeviceAge is how old the utilization, temperature and power of devices may be; nil or 0 leaves that to the hosts.
	// MaxAge is how old an answer of the driver may be if none comes in time; nil for enforce.DefaultMaxAge. Both are
	// called from many goroutines.
	DeviceAge func() time.Duration
	MaxAge    func(remote.Host) time.Duration
	Measure   bool // run nvidia-smi for each snapshot on hosts with genv 1.4.3
	Types     bool // ask for the types of processes where hosts don't send them; enforcement needs them
	Log       zerolog.Logger

	mu      sync.Mutex
	conns   map[string]*Conn
	logins  slots
	retries slots          // logins after a login that failed
	orders  slots          // commands that carry out orders
	failing atomic.Int32   // hosts to which the last login failed
	running sync.WaitGroup // calls and background work
	ending  sync.Map       // retired transports that wait for their orders
	closed  bool

	lease      atomic.Pointer[fence.LeaseRequest] // nil for none
	allowances atomic.Pointer[map[snapshot.Hostname]*service.Allowance]
}

var errPoolClosed = remote.Errorf(remote.Cancelled, "the connections to all hosts are closed")

// beginCall begins a call that Close waits for, with the work that it starts. A closed pool is an error.
func (p *Pool) beginCall() (leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errPoolClosed
	}
	p.running.Add(1)
	return p.running.Done, nil
}

func onConn[T any](p *Pool, host remote.Host, do func(*Conn) (T, error)) (value T, err error) {
	leave, err := p.beginCall()
	if err != nil {
		return value, err
	}
	defer leave()
	return do(p.conn(host))
}

func (p *Pool) conn(host remote.Host) *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		p.conns = make(map[string]*Conn)
		p.logins, p.orders, p.retries = newSlots(p.Fanout), newSlots(p.Fanout), newSlots((p.Fanout+3)/4)
	}
	c := p.conns[host.Name]
	if c == nil {
		c = &Conn{pool: p, host: host}
		p.conns[host.Name] = c
	}
	return c
}

// Keep keeps the connections to hosts that are reached as before. It ends the others, after the orders under way, and
// returns their hosts. It gives back the leases of hosts that aren't listed, and has hosts without `usage serve` asked
// for it again.
func (p *Pool) Keep(hosts []remote.Host) (over []remote.Host) {
	kept := make(map[string]remote.Host, len(hosts))
	for _, h := range hosts {
		kept[h.Name] = h
	}
	p.mu.Lock()
	var ended, removed, rest []*Conn
	for name, c := range p.conns {
		h, ok := kept[name]
		if !ok {
			removed = append(removed, c)
		}
		if !ok || !sameWay(h, c.host) {
			ended = append(ended, c)
			delete(p.conns, name)
		} else {
			rest = append(rest, c)
		}
	}
	closed := p.closed
	p.mu.Unlock()
	if !closed && p.lease.Load() != nil && len(removed) > 0 {
		giveBack(context.Background(), removed, true)
	}
	for _, c := range ended {
		c.close()
		over = append(over, c.host)
	}
	for _, c := range rest {
		c.reconsider()
	}
	return over
}

func sameWay(a, b remote.Host) bool {
	return a.Name == b.Name && a.Address == b.Address && a.Port == b.Port && a.User == b.User &&
		a.GenvPath == b.GenvPath && a.NoSudo == b.NoSudo && a.OpenSSH == b.OpenSSH
}

// Close ends all connections, and waits for them and all calls. Later calls are an error.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Keep(nil)
	p.ending.Range(func(t, _ any) bool { p.running.Go(t.(*streamTransport).close); return true })
	p.running.Wait()
}

// Snapshot asks a host for its snapshot.
func (p *Pool) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	taken, err := onConn(p, host, func(c *Conn) (*snapshot.Snapshot, error) { return c.snapshot(ctx) })
	if err != nil && remote.ClassOf(err) == remote.OutcomeUnknown {
		err = &remote.Error{Class: remote.Unreachable, Err: err} // a snapshot changes nothing
	}
	return taken, err
}

// Execute has a host carry out an order, once. After an error of the class OutcomeUnknown the host may have carried out
// all or part of it; after one that wraps ErrNotSent nothing.
func (p *Pool) Execute(ctx context.Context, host remote.Host, o order.Order) (Execution, error) {
	return onConn(p, host, func(c *Conn) (Execution, error) { return c.execute(ctx, o) })
}

// Notify has a host show messages to its users, and returns a receipt for each, or ErrCannotNotify if the host can't or
// isn't connected. Messages that are Over come last; an older genv doesn't get them.
func (p *Pool) Notify(ctx context.Context, host remote.Host, messages []Message) ([]Receipt, error) {
	return onConn(p, host, func(c *Conn) ([]Receipt, error) {
		t, _ := c.streamWith(RequestNotify)
		if t == nil {
			return nil, ErrCannotNotify
		}
		if !t.stream.Greeting.Can(CapabilityOver) {
			messages = slices.DeleteFunc(slices.Clone(messages), func(m Message) bool { return m.Over })
		}
		if len(messages) == 0 {
			return nil, nil
		}
		answer, err := request[NotifyAnswer](ctx, c, t, p.Timeout, RequestNotify, NotifyRequest{Messages: messages})
		return answer.shown(), err
	})
}

// About is what earlier answers told about a host.
type About struct {
	Via          Via // empty while it is unknown
	Peer         remote.Peer
	Capabilities []string // of its genv: requests, and CapabilityFence and the like
}

// Can reports whether the host has a capability.
func (a About) Can(capability string) bool { return slices.Contains(a.Capabilities, capability) }

// About returns what earlier answers told about a host.
func (p *Pool) About(host remote.Host) About {
	peer, _ := p.Network.Peer(host)
	a := About{Peer: peer}
	if t, _ := p.conn(host).current(); t != nil {
		a.Via, a.Capabilities = t.via(), t.capabilities()
	}
	return a
}

func (p *Pool) timeOf(t transport) time.Duration {
	if c, ok := t.(*Commands); ok {
		return p.Timeout + c.slow
	}
	return p.Timeout
}

// timeFor is the time limit of an order. The host asks the driver again before each signal, perhaps after another call
// has ended. genv 1.4.3 doesn't wait for processes.
func (p *Pool) timeFor(t transport, o order.Order) time.Duration {
	if t.via() != ViaStream {
		return p.timeOf(t)
	}
	return 4*p.Timeout + o.Lasts()
}

// enter waits until a call may begin on a transport. A command waits for a place, at most as long as commands to all
// hosts may take.
func (p *Pool) enter(ctx context.Context, places slots, t transport) (leave func(), err error) {
	if t.via() == ViaStream {
		return func() {}, nil
	}
	p.mu.Lock()
	limit := p.Timeout
	if p.Fanout > 0 {
		limit *= time.Duration((len(p.conns) + p.Fanout - 1) / p.Fanout)
	}
	p.mu.Unlock()
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = places.acquire(limited)
	switch {
	case err == nil && p.timeOf(t) > p.Timeout: // a slow host delays others by Timeout at most
		leave := sync.OnceFunc(places.release)
		late := time.AfterFunc(p.Timeout, leave)
		return func() { late.Stop(); leave() }, nil
	case err == nil:
		return places.release, nil
	case ctx.Err() == nil:
		return nil, remote.Errorf(remote.Timeout, "%w: commands to %d other hosts took all of %s", ErrNotSent,
			cap(places), limit)
	}
	return nil, notBegun(err)
}

// slots bound how many calls run at a time; nil for no bound.
type slots chan struct{}

func newSlots(n int) slots {
	if n <= 0 {
		return nil
	}
	return make(slots, n)
}

func (s slots) acquire(ctx context.Context) error {
	if s == nil {
		return nil
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s slots) release() {
	if s != nil {
		<-s
	}
}
