package controller

import (
	"context"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
)

// Delivery is sent to a host: an order, messages to its users, or a request for its guard.
type Delivery struct {
	Host snapshot.Hostname
	// Send sends it. It is called once, in the background, if remote.MayBegin; host has the name that answered.
	Send    func(ctx context.Context, link Link, host remote.Host) error
	Err     error // of Send, or why it was not sent
	Content any   // for the Companion that planned it

	round, position int         // the number of its round, and the position of its host in the fleet
	learner         interface { // its Companion, or the order
		Learn(*Round, *Delivery) Effects
	}
}

// Companion plans deliveries that aren't orders, and learns their results; some send by themselves. One goroutine calls
// it. It must not wait.
type Companion interface {
	// Plan returns what to send after a judgement; nothing in a dry run.
	Plan(round *Round, events []enforce.Event) ([]*Delivery, Effects)
	// Learn is called when a delivery has ended.
	Learn(round *Round, d *Delivery) Effects
}

// MemoryKeeper is a Companion with a memory that outlasts restarts.
type MemoryKeeper interface {
	Companion
	Name() string // of the memory
	Memory() any  // a pointer to what is kept as JSON
}

// Effects follow from a plan, or from a delivery that has ended.
type Effects struct {
	Records  []audit.Record
	Events   []enforce.Event
	Unwarned []string            // the IDs of findings of which users were not warned after all
	Ask      []snapshot.Hostname // of a plan: hosts to ask for another snapshot at once
	results  []OrderResult
}

func (l *Effects) add(more Effects) {
	l.Records, l.Events = append(l.Records, more.Records...), append(l.Events, more.Events...)
	l.Unwarned, l.results = append(l.Unwarned, more.Unwarned...), append(l.results, more.results...)
}

type background struct {
	sending int // deliveries
	ended   mailbox[*Delivery]

	unsaved bool      // the memory changed since the last save
	saved   time.Time // when the last save began
	writer  memoryWriter
}

// dispatch is the only place that sends deliveries: side by side, after the save of the memory, even a failed one.
func (b *background) dispatch(ctx context.Context, link Link, f *knownFleet, deliveries []*Delivery, safe *saving) {
	if len(deliveries) == 0 {
		return
	}
	positions := make(map[snapshot.Hostname]int, len(f.Cluster.Hosts))
	for i := range f.Cluster.Hosts {
		positions[f.Cluster.Hosts[i].Name] = i
	}
	b.sending += len(deliveries)
	for _, one := range deliveries {
		host, known := f.reached[one.Host]
		if !known {
			one.Err = remote.Errorf(remote.Cancelled, "%s is no host of the fleet any more", one.Host)
			b.ended.put(one)
			continue
		}
		one.position = positions[one.Host]
		b.ended.work.Go(func() {
			_ = safe.wait() // OnSave has the error
			if one.Err = remote.MayBegin(ctx); one.Err == nil {
				one.Err = one.Send(ctx, link, host)
			}
			b.ended.put(one)
		})
	}
}

func (b *background) take() []*Delivery {
	list := b.ended.take()
	b.sending -= len(list)
	return list
}

// memoryWriter writes the memory in the background. A newer one replaces those that still wait, so it is on disk after
// two writes at most. Its zero value is ready for use. It is safe for concurrent use.
type memoryWriter struct {
	mu     sync.Mutex
	newest func() error // writes the newest memory; nil once it is written
	last   *saving      // ends after all others
	work   sync.WaitGroup
}

type saving struct {
	done chan struct{} // closed when it, or a newer memory, has been written, or could not be
	err  error         // of that write
}

func (w *memoryWriter) Write(write func() error) *saving {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, before := &saving{done: make(chan struct{})}, w.last
	w.newest, w.last = write, s
	w.work.Go(func() {
		defer close(s.done)
		s.err = before.wait()
		w.mu.Lock()
		newest := w.newest
		w.newest = nil
		w.mu.Unlock()
		if newest != nil {
			s.err = newest()
		}
	})
	return s
}

func (s *saving) wait() error {
	if s == nil {
		return nil
	}
	<-s.done
	return s.err
}
