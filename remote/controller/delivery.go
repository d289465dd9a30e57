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

// Delivery is what is sent to a host: an order, messages to its users, or what its guard is asked.
type Delivery struct {
	Host snapshot.Hostname
	// Send sends it, in the background, once, if something may be begun, to the host under the name that answered.
	Send    func(ctx context.Context, link Link, host remote.Host) error
	Err     error // that of Send, or why it was not sent
	Content any   // for the Companion that planned it

	round, position int         // the number of its round, and where the host is in the fleet: see learn
	by              interface { // its Companion, or the order that it sends
		Learn(*Round, *Delivery) Learned
	}
}

// Companion plans what is sent besides orders, and learns what came of it. One goroutine calls it; it must not wait.
type Companion interface {
	// Plan returns what is to be sent, in a dry run nothing, and what there is to record and to say of it.
	Plan(round *Round, events []enforce.Event) ([]*Delivery, Learned)
	// Learn takes in what came of a delivery.
	Learn(round *Round, d *Delivery) Learned
}

// MemoryKeeper is a Companion with a memory that is kept over restarts.
type MemoryKeeper interface {
	Companion
	Name() string // of the memory
	Memory() any  // a pointer to what is kept, as JSON
}

// Learned is what there is to record and to say of a plan, or of a delivery that has ended.
type Learned struct {
	Records  []audit.Record
	Events   []enforce.Event
	Unwarned []string            // the IDs of findings of which users were not warned after all
	Ask      []snapshot.Hostname // of a plan: to be asked for another snapshot at once
	results  []OrderResult
}

func (l *Learned) add(more Learned) {
	l.Records, l.Events = append(l.Records, more.Records...), append(l.Events, more.Events...)
	l.Unwarned, l.results = append(l.Unwarned, more.Unwarned...), append(l.results, more.results...)
}

// background is what goes on without the loop: deliveries, and saves of the memory.
type background struct {
	underWay int // deliveries
	ended    mailbox[*Delivery]

	unsaved bool      // the memory changed since it was saved
	saved   time.Time // last
	writer  stateWriter
}

// dispatch sends deliveries, as nothing else does: side by side, once the memory is saved, or that has failed.
func (b *background) dispatch(ctx context.Context, link Link, f *knownFleet, deliveries []*Delivery, safe *saving) {
	if len(deliveries) == 0 {
		return
	}
	positions := make(map[snapshot.Hostname]int, len(f.Cluster.Hosts))
	for i := range f.Cluster.Hosts {
		positions[f.Cluster.Hosts[i].Name] = i
	}
	b.underWay += len(deliveries)
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

// take returns the deliveries that ended.
func (b *background) take() []*Delivery {
	list := b.ended.take()
	b.underWay -= len(list)
	return list
}

// stateWriter writes the state of a loop in the background. The newest state replaces those that still wait: it is safe
// after two writes at most. The zero stateWriter is ready for use, also concurrently.
type stateWriter struct {
	mu     sync.Mutex
	newest func() error // writes the newest state; nil when it is written
	last   *saving      // that ends after all others
	work   sync.WaitGroup
}

// saving is a state that is to be written.
type saving struct {
	done chan struct{} // closed when it, or a newer state, has been written
	err  error         // of that write, when it is done
}

// Write has a state written. It doesn't wait.
func (w *stateWriter) Write(write func() error) *saving {
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

// wait waits until a state is written, and returns the error.
func (s *saving) wait() error {
	if s == nil {
		return nil
	}
	<-s.done
	return s.err
}
