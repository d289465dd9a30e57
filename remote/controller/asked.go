package controller

import (
	"context"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/controllers"
	"github.com/seed-3119e985/genv/remote/controller/wake"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

// asked is the Link of a full cycle. A host on which something has changed is judged at once,
// not when the last host has answered: its look was for an event, too, which wakes no other.
type asked struct {
	Link
	wake *wake.Watch
	last map[string]*snapshot.Snapshot // by the names of the hosts

	mu sync.Mutex
	// others is what hosts said about other controllers in this cycle: what they say
	// meanwhile, when they wake, is not of the same time.
	others map[string]controllers.Answer
}

// newAsked is for the next full cycle.
func (c *Controller) newAsked() *asked {
	a := &asked{Link: c.Link, wake: c.between.wake, last: make(map[string]*snapshot.Snapshot), others: make(map[string]controllers.Answer)}
	if c.last == nil {
		return a
	}
	for i := range c.last.Cluster.Hosts {
		h := &c.last.Cluster.Hosts[i]
		a.last[c.last.answered[h.Name].Name] = h.Snapshot
	}
	return a
}

// Snapshot implements Link.
func (a *asked) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	begun := time.Now()
	s, err := a.Link.Snapshot(ctx, host)
	if err != nil {
		return s, err
	}
	others := a.About(host).Controllers
	a.mu.Lock()
	a.others[host.Name] = others
	a.mu.Unlock()
	if last := a.last[host.Name]; last != nil && s != last && !watch.SameUse(last, s) {
		a.wake.Offer(wake.Look{Host: host, Snapshot: s, Asked: begun, Came: time.Now()})
	}
	return s, nil
}
