package controller

import (
	"context"
	"sync"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
)

// Delivery is what is sent to a host: an order, messages to its users, or what its guard is asked.
type Delivery struct {
	Host snapshot.Hostname
	// Send sends it, in the background, once, if something may be begun, to the host under the name that answered.
	Send     func(ctx context.Context, link Link, host remote.Host) error
	Err      error // that of Send, or why it was not sent
	Content  any   // for the Companion that planned it
	Parallel bool  // others to the host don't wait for it

	learn           func(*Delivery) Learned // learnOutcome, or Learn of its Companion
	cycle, position int                     // the number of its round, and where the host is in the fleet
}

// Companion plans what is sent besides orders, and learns what came of it. One goroutine calls it; it must not wait.
type Companion interface {
	// Plan returns what is to be sent, in a dry run nothing, and what there is to record and to say of it.
	Plan(cycle *Cycle, events []enforce.Event) ([]*Delivery, Learned)
	// Learn takes in what came of a delivery.
	Learn(cycle *Cycle, d *Delivery) Learned
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
	Unwarned []string // the IDs of findings of which users were not warned after all
}

func (l *Learned) add(more Learned) {
	l.Records, l.Events = append(l.Records, more.Records...), append(l.Events, more.Events...)
	l.Unwarned = append(l.Unwarned, more.Unwarned...)
}

// dispatch sends deliveries, as nothing else does: hosts side by side, to each one after the other but for those that
// are Parallel, once the memory is saved, or that has failed.
func (b *background) dispatch(ctx context.Context, to Survey, f *knownFleet, deliveries []*Delivery, safe *saving) {
	byHost := make(map[snapshot.Hostname][]*Delivery)
	for _, one := range deliveries {
		b.underWay++
		if _, known := f.reached[one.Host]; known {
			byHost[one.Host] = append(byHost[one.Host], one)
		} else {
			one.Err = remote.Errorf(remote.Cancelled, "%s is no host of the fleet any more", one.Host)
			b.ended.put(one)
		}
	}
	byName := make(map[string][]*Delivery, len(byHost))
	var hosts []remote.Host
	for i := range f.Cluster.Hosts { // in their order
		name := f.Cluster.Hosts[i].Name
		if list := byHost[name]; len(list) > 0 {
			for _, one := range list {
				one.position = i
			}
			hosts = append(hosts, f.reached[name])
			byName[f.reached[name].Name] = list
		}
	}
	b.ended.work.Go(func() {
		_ = safe.wait() // OnSave has the error
		remote.Each(context.WithoutCancel(ctx), hosts, to.Fanout,
			func(_ context.Context, h remote.Host) (struct{}, error) {
				for _, one := range byName[h.Name] {
					send := func() {
						if one.Err = remote.MayBegin(ctx); one.Err == nil {
							one.Err = one.Send(ctx, to.Link, h)
						}
						b.ended.put(one)
					}
					if one.Parallel {
						b.ended.work.Go(send)
					} else {
						send()
					}
				}
				return struct{}{}, nil
			})
	})
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
