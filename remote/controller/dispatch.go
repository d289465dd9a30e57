package controller

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller/wake"
	"github.com/seed-3119e985/genv/snapshot"
)

// dispatcher makes visits to hosts without waiting for them, and returns those that
// ended. It belongs to one goroutine.
type dispatcher struct {
	underWay int
	results  chan *visit // of all visits
}

// send is the choke point: the only place from which a host is changed. It waits in the
// background until the memory is safe, if that is not nil.
func (d *dispatcher) send(ctx context.Context, a *Asker, visits []*visit, safe <-chan struct{}) {
	byName := make(map[snapshot.Hostname]*visit, len(visits))
	for _, v := range visits {
		byName[v.name] = v
	}
	hosts := slices.DeleteFunc(slices.Clone(a.Hosts), func(h remote.Host) bool { return byName[snapshot.Hostname(h.Name)] == nil })
	if d.results == nil {
		d.results = make(chan *visit)
	}
	for i, h := range hosts {
		byName[snapshot.Hostname(h.Name)].position = i
	}
	d.underWay += len(hosts)
	link, fanout, results := a.Link, a.Fanout, d.results // the controller may get other options meanwhile
	go func() {
		if safe != nil {
			<-safe
		}
		remote.Each(context.WithoutCancel(ctx), hosts, fanout, func(_ context.Context, h remote.Host) (struct{}, error) {
			v := byName[snapshot.Hostname(h.Name)]
			v.deliver(ctx, link)
			results <- v
			return struct{}{}, nil
		})
	}()
}

// ended returns the visits that have ended, and does not wait.
func (d *dispatcher) ended() []*visit {
	var done []*visit
	for d.underWay > 0 {
		select {
		case v := <-d.results:
			d.underWay--
			done = append(done, v)
		default:
			return inOrder(done)
		}
	}
	return inOrder(done)
}

// wait waits for the visits under way and returns those that ended. A time that is not
// zero limits the wait; once ctx has ended, settle does: 0 is no limit. What comes meanwhile is
// done, until ctx ends.
func (d *dispatcher) wait(ctx context.Context, until time.Time, settle time.Duration, m *meanwhile) []*visit {
	var late <-chan time.Time
	if !until.IsZero() {
		late = time.After(time.Until(until))
	}
	stopped := ctx.Done()
	var done []*visit
	for d.underWay > 0 {
		if ctx.Err() != nil && stopped != nil { // it is waited for, and nothing else begun
			stopped, late, m = nil, nil, &meanwhile{}
			if settle > 0 {
				late = time.After(settle)
			}
		}
		select {
		case v := <-d.results:
			d.underWay--
			done = append(done, v)
		case r := <-m.requests:
			m.serve(r)
		case l := <-m.looks:
			m.early(l)
		case <-stopped:
		case <-late:
			return inOrder(done)
		}
	}
	return inOrder(done)
}

// meanwhile is what a loop does while it waits; its channels may be nil.
type meanwhile struct {
	requests <-chan *request
	serve    func(*request)
	looks    <-chan []wake.Look
	early    func([]wake.Look)
}

// inOrder sorts visits by cycle and host.
func inOrder(visits []*visit) []*visit {
	slices.SortFunc(visits, func(a, b *visit) int {
		return cmp.Or(cmp.Compare(a.cycle, b.cycle), cmp.Compare(a.position, b.position), cmp.Compare(a.name, b.name))
	})
	return visits
}
