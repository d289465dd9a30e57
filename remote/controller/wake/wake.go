// Package wake asks hosts for their snapshots as soon as something happens there, between the ticks of a controller.
//
//	w := wake.Start(pool)
//	defer w.Close()
//	w.Watch(hosts) // at a tick, and after it: those that answered
//	for looks := range w.Looks() { … }
//
// Each host is asked in its own goroutine, so that none delays another; a wait needs none. A host is asked at most ten
// times a second, and less often while its snapshot doesn't change or is large. Looks are passed on together.
package wake

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// Link asks hosts and waits for their events; *agent.Pool is one.
type Link interface {
	Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error)
	// Await calls done once, in its own goroutine, when something may have changed on a host since its last snapshot,
	// or after some minutes with woke false. After an error only ticks can ask the host; after agent.ErrNoEvents as
	// long as its genv is the same.
	Await(ctx context.Context, host remote.Host, done func(woke bool, err error))
}

// Look is a snapshot of a host that woke.
type Look struct {
	Host     remote.Host
	Snapshot *snapshot.Snapshot
	// Asked and Came are when the host was asked and when it answered, by the monotonic clock.
	Asked, Came time.Time
}

// Watch waits for events of hosts. A nil Watch waits for none.
type Watch struct {
	link Link
	ctx  context.Context //nolint:containedctx // it lives as long as the Watch
	end  context.CancelFunc
	work sync.WaitGroup // collect, and one for each host that is followed
	in   chan Look
	out  chan []Look

	begun time.Time
	mu    sync.Mutex
	hosts map[string]*waiting // by name
	round uint64              // calls of Watch
}

type waiting struct {
	host  remote.Host
	ctx   context.Context //nolint:containedctx // it lives as long as Watch lists the host
	end   context.CancelFunc
	again chan struct{} // has a value after another call of Watch
	round uint64        // the last call of Watch that listed it
	rest  atomic.Int32  // calls of Watch until it is followed again; 0 while it is followed
	since atomic.Int64  // when waiting began, in nanoseconds since the Watch began; or never

	// Used by the goroutine that waits for it or asks it; there is one at a time.
	heard  bool // the last wait ended without an error
	pacing pacing
	last   *snapshot.Snapshot
}

// Start returns a Watch without hosts.
func Start(link Link) *Watch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watch{
		link: link, ctx: ctx, end: cancel, in: make(chan Look), out: make(chan []Look), begun: time.Now(),
		hosts: make(map[string]*waiting),
	}
	w.work.Go(w.collect)
	return w
}

// Watch follows these hosts from now on, and no others. Waits that failed are tried again.
func (w *Watch) Watch(hosts []remote.Host) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.round++
	for _, h := range hosts {
		if known := w.hosts[h.Name]; known != nil {
			known.round = w.round
			if known.rest.Load() > 0 {
				if known.rest.Add(-1) == 0 {
					w.follow(known)
				}
				continue
			}
			select {
			case known.again <- struct{}{}:
			default: // it has a value already
			}
			continue
		}
		ctx, cancel := context.WithCancel(w.ctx)
		one := &waiting{host: h, ctx: ctx, end: cancel, again: make(chan struct{}, 1), round: w.round}
		one.since.Store(never)
		w.hosts[h.Name] = one
		w.follow(one)
	}
	for name, one := range w.hosts {
		if one.round != w.round {
			one.end()
			delete(w.hosts, name)
		}
	}
}

// Looks brings the last look at each host that woke, as soon as the controller can judge them.
func (w *Watch) Looks() <-chan []Look {
	if w == nil {
		return nil
	}
	return w.out
}

// Close ends all waits.
func (w *Watch) Close() {
	if w == nil {
		return
	}
	w.end()
	w.work.Wait()
}

func (w *Watch) collect() {
	pending := make(map[string]Look)
	for {
		var out chan<- []Look
		if len(pending) > 0 {
			out = w.out
		}
		select {
		case l := <-w.in:
			if l.Asked.After(pending[l.Host.Name].Asked) {
				pending[l.Host.Name] = l
			}
		case out <- slices.Collect(maps.Values(pending)):
			clear(pending)
		case <-w.ctx.Done():
			return
		}
	}
}

// restWithoutEvents is after how many calls of Watch a host without events is tried again: it may have another genv.
const restWithoutEvents = 16

// follow repeats waiting for a host and asking it, unless it reports no events.
func (w *Watch) follow(one *waiting) {
	one.heard, one.pacing, one.last = false, newPacing(time.Now()), nil
	w.work.Add(1)
	go w.await(one)
}

// await waits for an event of a host. The call itself may take a moment: an earlier request is written first.
func (w *Watch) await(one *waiting) {
	since := time.Since(w.begun)
	if !one.heard {
		since += refusal
	}
	one.since.Store(int64(since))
	w.link.Await(one.ctx, one.host, func(woke bool, err error) { w.woke(one, woke, err) })
}

// woke continues when a wait for a host is over.
func (w *Watch) woke(one *waiting, woke bool, err error) {
	one.since.Store(never)
	one.heard = err == nil
	switch {
	case errors.Is(err, agent.ErrNoEvents):
		one.rest.Store(restWithoutEvents)
		w.work.Done()
		return
	case err != nil:
		one.afterTick() // the tick finds out what is wrong
	}
	w.ask(one, woke && err == nil)
	if one.ctx.Err() != nil {
		w.work.Done()
		return
	}
	w.await(one)
}

func (w *Watch) ask(one *waiting, woke bool) {
	p := &one.pacing
	for d := p.before(time.Now()); d > 0; d = p.before(time.Now()) {
		if !remote.Sleep(one.ctx, d) {
			return
		}
	}
	asked := time.Now()
	if !woke {
		p.asked(asked, false, 0)
		return
	}
	s, err := w.link.Snapshot(one.ctx, one.host)
	p.asked(asked, err == nil && s != one.last, entries(s))
	switch {
	case err != nil:
	case entries(s) > maxEntries:
		one.afterTick()
	default:
		one.last = s
		select {
		case w.in <- Look{one.host, s, asked, time.Now()}:
		case <-w.ctx.Done():
		}
	}
}

// afterTick waits for another call of Watch, at or after a tick.
func (h *waiting) afterTick() {
	select {
	case <-h.again:
	case <-h.ctx.Done():
	}
}

// A host is asked at most once per floor; after burst answers without a change, at most once per refill.
const (
	floor  = 100 * time.Millisecond
	burst  = 50
	refill = 500 * time.Millisecond
)

// An entry of a snapshot takes the controller some 40 µs, and hosts can make entries up. So hosts with large snapshots
// are asked less often, and those with more than maxEntries at ticks only.
const (
	perEntry   = 200 * time.Microsecond
	maxEntries = 4000
	usagesEach = 16
	textEach   = 1024 // bytes
)

// entries measures the work to decode and judge a snapshot. usagesEach and textEach take as long as an entry.
func entries(s *snapshot.Snapshot) int {
	if s == nil {
		return 0
	}
	n := len(s.Processes) + len(s.Environments) + len(s.Devices)
	for i := range s.Processes {
		p := &s.Processes[i]
		n += len(p.Usage)/usagesEach + (len(p.Name)+len(p.Command)+len(p.PrivateCommand))/textEach
	}
	for i := range s.Environments {
		n += len(s.Environments[i].PIDs) + len(s.Environments[i].KernelIDs)
	}
	for i := range s.Devices {
		n += len(s.Devices[i].Attachments)
	}
	return n
}

type pacing struct {
	last  time.Time     // when it was asked
	pause time.Duration // after last, at least
	left  int           // how many answers without a change are left until it is asked less often
	from  time.Time     // since when left grows
}

func newPacing(now time.Time) pacing { return pacing{pause: floor, left: burst, from: now} }

func (p *pacing) before(now time.Time) time.Duration {
	if grown := int(now.Sub(p.from) / refill); grown > 0 {
		p.left, p.from = min(p.left+grown, burst), p.from.Add(time.Duration(grown)*refill)
	}
	wait := p.last.Add(p.pause).Sub(now)
	if p.left <= 0 {
		wait = max(wait, p.from.Add(refill).Sub(now))
	}
	return max(wait, 0)
}

// asked notes a question, and the entries of its answer.
func (p *pacing) asked(now time.Time, changed bool, entries int) {
	p.last, p.pause = now, max(floor, time.Duration(entries)*perEntry)
	if !changed {
		p.left = max(p.left-1, 0)
	}
}

// A tick asks hosts that report events one after the other, so that violations are handled in between: each after a
// gap, or less if all would take longer than a part of the interval, or than spreadMost. Intervals below spreadFrom are
// not spread.
const (
	gap        = 25 * time.Millisecond
	part       = 4
	spreadMost = 5 * time.Second
	spreadFrom = 5 * time.Second
)

// Spread is the time between two of n hosts that report events when a tick asks them.
func Spread(n int, interval time.Duration) time.Duration {
	if n < 2 || interval < spreadFrom {
		return 0
	}
	return min(gap, min(interval/part, spreadMost)/time.Duration(n))
}

const (
	refusal = time.Second // hosts without events usually say so within it
	never   = math.MaxInt64
)

// Listens reports whether waiting for a host works, and the host has not woken since its last look. Asking it would
// then show nothing new. It is safe for concurrent use.
func (w *Watch) Listens(host string) bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.hosts[host]
	return known != nil && int64(time.Since(w.begun)) >= known.since.Load()
}
