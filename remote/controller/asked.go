package controller

import (
	"context"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller/wake"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

// asked is the Link of a full cycle. A host on which something has changed is judged at once,
// not when the last host has answered: its look was for an event, too, which wakes no other.
//
// Looks at hosts that report events are spread over some time (wake.Spread). What happens
// there until the last one is looked at is known from their events, so that what is judged is
// of the end of that time: a look for an event replaces the one before it, and a host that
// doesn't listen at the end is looked at then.
type asked struct {
	Link
	wake  *wake.Watch
	last  map[string]*snapshot.Snapshot // by the names of the hosts
	turns map[string]time.Time          // of hosts that listen
	end   time.Time                     // of these turns

	mu sync.Mutex
	at map[string]time.Time // when the snapshot of each host was asked for

	newest map[string]wake.Look // at hosts that woke meanwhile
}

// newAsked is for the next full cycle.
func (c *Controller) newAsked() *asked {
	n := len(c.Hosts)
	a := &asked{
		Link: c.Link, wake: c.between.wake, last: make(map[string]*snapshot.Snapshot, n),
		at: make(map[string]time.Time, n), newest: make(map[string]wake.Look),
	}
	a.spread(c.Hosts, c.interval)
	if c.last == nil {
		return a
	}
	for i := range c.last.Cluster.Hosts {
		h := &c.last.Cluster.Hosts[i]
		a.last[c.last.answered[h.Name].Name] = h.Snapshot
	}
	return a
}

// spread gives hosts that listen their turns.
func (a *asked) spread(hosts []remote.Host, interval time.Duration) {
	a.turns, a.end = make(map[string]time.Time), time.Now()
	var listening []string
	for _, h := range hosts {
		if a.wake.Listens(h.Name) {
			listening = append(listening, h.Name)
		}
	}
	gap, begun := wake.Spread(len(listening), interval), a.end
	for i, name := range listening {
		a.end = begun.Add(time.Duration(i) * gap)
		a.turns[name] = a.end
	}
}

// Snapshot implements Link.
func (a *asked) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	turn, listened := a.turns[host.Name]
	if !listened {
		turn = a.end
	}
	waitUntil(ctx, turn)
	s, err := a.look(ctx, host)
	if !listened || !turn.Before(a.end) {
		return s, err
	}
	waitUntil(ctx, a.end)
	if err != nil || a.wake.Listens(host.Name) || ctx.Err() != nil {
		return s, err
	}
	return a.look(ctx, host)
}

func (a *asked) look(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	begun := time.Now()
	s, err := a.Link.Snapshot(ctx, host)
	if err != nil {
		return s, err
	}
	a.mu.Lock()
	a.at[host.Name] = begun
	a.mu.Unlock()
	if last := a.last[host.Name]; last != nil && s != last && !watch.SameUse(last, s) {
		a.wake.Offer(wake.Look{Host: host, Snapshot: s, Asked: begun, Came: time.Now()})
	}
	return s, nil
}

// woke keeps looks at hosts that woke during the cycle.
func (a *asked) woke(looks []wake.Look) {
	for _, l := range looks {
		a.newest[l.Host.Name] = l
	}
}

// renew replaces snapshots by those that were asked for later, when all hosts have been
// asked. A host of which a look failed keeps its error.
func (a *asked) renew(hosts []remote.Host, cluster *snapshot.Cluster) {
	for i, h := range hosts {
		l, woke := a.newest[h.Name]
		if woke && cluster.Hosts[i].Err == nil && l.Asked.After(a.at[h.Name]) {
			cluster.Hosts[i].Snapshot, a.at[h.Name] = l.Snapshot, l.Asked
		}
	}
}

// waitUntil waits until t, or the end of ctx.
func waitUntil(ctx context.Context, t time.Time) {
	if !time.Now().Before(t) {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, t)
	defer cancel()
	<-ctx.Done()
}
