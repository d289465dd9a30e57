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

// pacedLink is the Link of a full cycle. A host on which something has changed is judged at once,
// not when the last host has answered: its look was for an event, too, which wakes no other.
//
// Looks at hosts that report events are spread over some time (wake.Spread). What happens
// there until the last one is looked at is known from their events, so that what is judged is
// of the end of that time: a look for an event replaces the one before it, and a host that
// doesn't listen at the end is looked at then.
type pacedLink struct {
	Link
	wake  *wake.Watch
	last  map[string]*snapshot.Snapshot // by the names of the hosts
	turns map[string]time.Time          // of hosts that listen
	end   time.Time                     // of these turns

	mu sync.Mutex
	at map[string]time.Time // when the snapshot of each host was asked for

	newest map[string]wake.Look // at hosts that woke meanwhile
}

// newPacedLink is for the next full cycle.
func (c *Controller) newPacedLink() *pacedLink {
	n := len(c.Hosts)
	p := &pacedLink{
		Link: c.Link, wake: c.between.wake, last: make(map[string]*snapshot.Snapshot, n),
		at: make(map[string]time.Time, n), newest: make(map[string]wake.Look),
	}
	p.spread(c.Hosts, c.interval)
	if c.last == nil {
		return p
	}
	for i := range c.last.Cluster.Hosts {
		h := &c.last.Cluster.Hosts[i]
		p.last[c.last.answered[h.Name].Name] = h.Snapshot
	}
	return p
}

// spread gives hosts that listen their turns.
func (p *pacedLink) spread(hosts []remote.Host, interval time.Duration) {
	p.turns, p.end = make(map[string]time.Time), time.Now()
	var listening []string
	for _, h := range hosts {
		if p.wake.Listens(h.Name) {
			listening = append(listening, h.Name)
		}
	}
	gap, begun := wake.Spread(len(listening), interval), p.end
	for i, name := range listening {
		p.end = begun.Add(time.Duration(i) * gap)
		p.turns[name] = p.end
	}
}

// Snapshot implements Link.
func (p *pacedLink) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	turn, listened := p.turns[host.Name]
	if !listened {
		turn = p.end
	}
	waitUntil(ctx, turn)
	s, err := p.look(ctx, host)
	if !listened || !turn.Before(p.end) {
		return s, err
	}
	waitUntil(ctx, p.end)
	if err != nil || p.wake.Listens(host.Name) || ctx.Err() != nil {
		return s, err
	}
	return p.look(ctx, host)
}

func (p *pacedLink) look(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	begun := time.Now()
	s, err := p.Link.Snapshot(ctx, host)
	if err != nil {
		return s, err
	}
	p.mu.Lock()
	p.at[host.Name] = begun
	p.mu.Unlock()
	if last := p.last[host.Name]; last != nil && s != last && !watch.SameUse(last, s) {
		p.wake.Offer(wake.Look{Host: host, Snapshot: s, Asked: begun, Came: time.Now()})
	}
	return s, nil
}

// woke keeps looks at hosts that woke during the cycle.
func (p *pacedLink) woke(looks []wake.Look) {
	for _, l := range looks {
		p.newest[l.Host.Name] = l
	}
}

// renew replaces snapshots by those that were asked for later, when all hosts have been
// asked. A host of which a look failed keeps its error.
func (p *pacedLink) renew(hosts []remote.Host, cluster *snapshot.Cluster) {
	for i, h := range hosts {
		l, woke := p.newest[h.Name]
		if woke && cluster.Hosts[i].Err == nil && l.Asked.After(p.at[h.Name]) {
			cluster.Hosts[i].Snapshot, p.at[h.Name] = l.Snapshot, l.Asked
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
