// Package live is the present state of a fleet, for the live view, the web page, the metrics and the socket.
//
//	feed := live.NewFeed(live.Options{Now: time.Now})
//	c.Sinks = append(c.Sinks, feed)              // the controller's events
//	fleet := feed.Fleet()                        // the present state
//	changes, stop := feed.Watch(); defer stop()  // its changes
//
// A Feed asks no host: it keeps what a controller saw and decided. Documents are derived when a viewer asks, once for
// all viewers. A viewer is only woken, and fetches what it wants: a slow one delays nothing, and misses events that are
// no longer kept.
//
// NewHandler serves a Feed over HTTP, as docs/json.md says. It only reads, and shows everything to whoever may connect;
// Client is its client. NewActions, for a unix socket only, takes actions from root and the controller's account;
// SendAction is its client.
package live

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

const maxEvents = 4096

// Options configure a Feed.
type Options struct {
	Now       func() time.Time
	Interval  time.Duration                   // between two rounds
	Enforcing bool                            // false if nothing is judged
	Election  func() *election.StatusDocument // nil without --leader
	Policy    enforce.Policy                  // for the caps of users; nil for none
}

// Feed has the present state of a fleet. It is safe for concurrent use.
type Feed struct {
	deriving sync.Mutex  // locked before mu, perhaps for long
	derived  *FleetState // from state, or from an earlier one
	nameless *FleetState // derived without names, or an earlier one

	mu       sync.Mutex
	options  Options
	state    lastRound
	looked   time.Time // for idle GPUs
	idle     map[gpuKey]idleFor
	events   []FleetEvent // the last ones
	count    uint64       // of all events
	watchers map[chan struct{}]bool
	watched  time.Time // when Fleet was called last
}

// NewFeed returns a Feed without a state.
func NewFeed(options Options) *Feed {
	f := &Feed{watchers: make(map[chan struct{}]bool)}
	f.Configure(options)
	return f
}

// Configure replaces the options, after a reload.
func (f *Feed) Configure(options Options) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.options = options
}

// Consume implements controller.Sink.
func (f *Feed) Consume(round *controller.Round, events []enforce.Event) {
	if f.add(round, events); round.Ended && !round.Stopped {
		f.lookForIdle()
	}
}

func (f *Feed) add(round *controller.Round, events []enforce.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.options.Now()
	before := sync.OnceValue(func() map[string]*enforce.Finding { return byID(f.state.round.Plan.Findings) })
	for i := range events {
		if events[i].Kind == enforce.EventNote && !f.options.Enforcing {
			continue // it is about what can't be judged
		}
		for _, e := range eventsOf(&events[i], before) {
			f.count++
			e.Number, e.Time, e.Cycle = f.count, now, round.Number
			if e.Record != nil {
				e.Record.Time = now
			}
			f.events = append(f.events, e)
		}
	}
	if excess := len(f.events) - maxEvents; excess > maxEvents/4 {
		f.events = fairly(f.events)
	}
	// Else the round only has outcomes of orders of an earlier one.
	if round.Ended && !round.Stopped || !round.Ended && len(round.Cluster.Hosts) > 0 {
		f.take(round)
	}
	f.wake()
}

// fairly keeps the newest maxEvents events. It drops those of hosts with many, so that none can hide others' events.
func fairly(events []FleetEvent) []FleetEvent {
	counts := make(map[snapshot.Hostname]int)
	for i := range events {
		counts[events[i].Host]++
	}
	most := sort.Search(maxEvents, func(n int) bool { // that a host may have
		sum := 0
		for _, count := range counts {
			sum += min(count, n+1)
		}
		return sum > maxEvents
	})
	events = slices.DeleteFunc(events, func(e FleetEvent) bool {
		counts[e.Host]--
		return counts[e.Host] >= max(most, 1)
	})
	return slices.Delete(events, 0, max(0, len(events)-maxEvents))
}

// take makes a round the present state. The caller holds the lock.
func (f *Feed) take(round *controller.Round) {
	hosts := make(map[snapshot.Hostname]answered, len(round.Cluster.Hosts))
	for i := range round.Cluster.Hosts {
		h := &round.Cluster.Hosts[i]
		hosts[h.Name] = f.state.hosts[h.Name]
		if h.Snapshot != nil {
			hosts[h.Name] = answered{cmp.Or(h.AskedAt, round.Start), round.Via[h.Name], h.Snapshot}
		}
	}
	f.state = lastRound{round: *round, hosts: hosts, options: f.options, revision: f.state.revision + 1}
	if f.options.Election != nil {
		f.state.election = f.options.Election()
	}
}

// Fleet returns the present state, which must not be changed. The controller doesn't wait while it is derived.
func (f *Feed) Fleet() *FleetState {
	f.mu.Lock()
	f.watched = f.options.Now()
	f.mu.Unlock()
	return f.present()
}

func (f *Feed) present() *FleetState {
	f.deriving.Lock()
	defer f.deriving.Unlock()
	f.mu.Lock()
	now := f.state
	f.mu.Unlock()
	if f.derived == nil || f.derived.Revision != now.revision {
		f.derived = now.fleet(f.derived)
	}
	return f.derived
}

// Position is the fleet's Run and Revision, and the number of the last event.
type Position struct {
	Run      string
	Revision uint64
	Events   uint64
}

// Position is cheap. Watched ignores it.
func (f *Feed) Position() Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return Position{f.state.round.Run, f.state.revision, f.count}
}

// Watched reports whether Fleet was called within a time.
func (f *Feed) Watched(within time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.watched.IsZero() && f.options.Now().Sub(f.watched) <= within
}

// Events returns those with a number greater than after, the oldest first. Missing ones are no longer kept.
func (f *Feed) Events(after uint64) []FleetEvent {
	f.mu.Lock()
	defer f.mu.Unlock()
	begin := sort.Search(len(f.events), func(i int) bool { return f.events[i].Number > after })
	return slices.Clone(f.events[begin:])
}

// Watch returns a channel that gets a value at once, and after changes until stop is called. One value may stand for
// several changes.
func (f *Feed) Watch() (changes <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	c <- struct{}{}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watchers[c] = true
	return c, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, c)
	}
}

// wake wakes all watchers. The caller holds the lock.
func (f *Feed) wake() {
	for c := range f.watchers {
		select {
		case c <- struct{}{}:
		default: // it has a value already
		}
	}
}

const lookEvery = time.Minute

type gpuKey struct {
	host  snapshot.Hostname
	index snapshot.DeviceIndex
}

type idleFor struct {
	users string
	since time.Time
}

func (f *Feed) lookForIdle() {
	f.mu.Lock()
	now, before := f.options.Now(), f.idle
	age := now.Sub(f.looked)
	f.mu.Unlock()
	if age >= 0 && age < lookEvery {
		return
	}
	idle := idleGPUs(f.present(), before, now)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looked, f.idle = now, idle
}

func idleGPUs(f *FleetState, before map[gpuKey]idleFor, now time.Time) map[gpuKey]idleFor {
	idle := make(map[gpuKey]idleFor)
	for i := range f.Hosts {
		for j := range f.Hosts[i].GPUs {
			g, key := &f.Hosts[i].GPUs[j], gpuKey{f.Hosts[i].Name, f.Hosts[i].GPUs[j].Index}
			if g.State != gpus.Attached && g.State != gpus.Idle {
				continue
			}
			idle[key] = idleFor{fmt.Sprintf("%q", g.Users()), now}
			if known, found := before[key]; found && known.users == idle[key].users {
				idle[key] = known
			}
		}
	}
	return idle
}

// IdleSince returns since when a GPU is attached or held by the same users and computes nothing; zero if it isn't.
func (f *Feed) IdleSince(host snapshot.Hostname, gpu snapshot.DeviceIndex) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.idle[gpuKey{host, gpu}].since
}
