package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce"
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

// Events waits until something may have changed on a host; see wake.Link.
type Events interface {
	Await(ctx context.Context, host remote.Host, done func(woke bool, err error))
}

// between is what a controller does between two full cycles: it judges hosts that woke.
type between struct {
	wake  *wake.Watch // nil for none
	spent enforce.Spent
	count int                             // early cycles since the last full one began
	acted map[snapshot.Hostname]time.Time // when the outcome of an order came last
}

// oldestWake is for how long the snapshot of a host that woke may have waited to be judged.
const oldestWake = 2 * time.Second

// mayBeEarly reports whether hosts may be judged between two full cycles. A dry run says once
// per cycle what it would do; with StopAtFailure nothing may be done while any host fails; a
// hold, other hosts or another policy, and a record that can't be kept are for full cycles.
func (c *Controller) mayBeEarly(ctx context.Context) bool {
	return c.Events != nil && c.interval > 0 && !c.DryRun && !c.StopAtFailure && !over(ctx) &&
		c.last != nil && !c.reloaded && c.Memory.Operator.Hold == nil && (c.last.Unrecorded == nil || c.ActUnrecorded)
}

// waitForEvents begins to wait for the hosts that answered a full cycle, until the next one ends.
func (c *Controller) waitForEvents(cycle *Cycle) {
	c.between.spent.Begin(&cycle.Plan)
	if c.Events == nil || c.interval <= 0 || c.DryRun || c.StopAtFailure {
		return
	}
	if c.between.wake == nil {
		c.between.wake = wake.Start(eventLink{c.Events, c.Link})
	}
	hosts := make([]remote.Host, 0, len(cycle.Cluster.Hosts))
	for i := range cycle.Cluster.Hosts {
		if h := &cycle.Cluster.Hosts[i]; h.Err == nil {
			hosts = append(hosts, cycle.answered[h.Name])
		}
	}
	c.between.wake.Watch(hosts)
}

type eventLink struct {
	Events
	Link
}

// stopEvents ends the waits.
func (c *Controller) stopEvents() {
	c.between.wake.Close()
	c.between.wake = nil
}

// early judges hosts that woke, and acts on them alone. Nothing is shown if nothing is new.
func (c *Controller) early(ctx context.Context, looks []wake.Look) {
	begun := time.Now()
	defer func() { c.between.wake.Took(time.Since(begun)) }()
	if !c.mayBeEarly(ctx) {
		return
	}
	cycle, asked := c.earlyCycle(looks)
	now := c.Now()
	judged := enforce.JudgeAsked(c.Memory.Operator.Policy(c.Policy, now), asked, c.Memory.Rules, &c.between.spent, now)
	for name := range judged.Untyped {
		c.between.wake.Again(cycle.answered[name], true)
	}
	if cycle.Asked = judged.Judged; len(cycle.Asked) == 0 {
		return
	}
	cycle.Plan = c.last.Plan.With(judged.Plan, func(h snapshot.Hostname) bool { return cycle.Asked[h] })
	c.last = cycle
	c.between.count++
	next := c.Memory
	next.Rules = judged.Memory
	if len(judged.Events) == 0 {
		c.Memory = next
		return
	}
	shown := *cycle
	shown.Start = now
	c.act(ctx, &shown, next, judged.Events)
}

// earlyCycle is the last cycle with new snapshots of the hosts that woke, and these hosts.
// Only a snapshot counts that is new, and younger than the last full one, of a host that
// answered the last full cycle and is still the same machine. Where it is too old to be judged,
// the host is asked again: it won't wake for what it has shown already.
func (c *Controller) earlyCycle(looks []wake.Look) (*Cycle, []snapshot.Host) {
	cycle := *c.last
	cycle.Early++
	cycle.Earlier, cycle.guards, cycle.Asked = 0, nil, nil
	cycle.Duplicates, cycle.Actions, cycle.Notified, cycle.Records, cycle.Unrecorded = nil, nil, nil, nil, nil
	cycle.Cluster.Hosts = slices.Clone(cycle.Cluster.Hosts)
	cycle.operator(c.Memory.Operator)
	byName := make(map[string]wake.Look, len(looks))
	for _, l := range looks {
		byName[l.Host.Name] = l
	}
	var asked []snapshot.Host
	for i := range cycle.Cluster.Hosts {
		h := &cycle.Cluster.Hosts[i]
		look, woke := byName[cycle.answered[h.Name].Name]
		if !woke || !c.current(&cycle, h, &look) {
			continue
		}
		if !c.fresh(h.Name, &look) {
			c.between.wake.Again(look.Host, false)
			continue
		}
		h.Snapshot = look.Snapshot
		asked = append(asked, *h)
	}
	return &cycle, asked
}

// current reports whether a look shows something new of the machine that was judged last.
func (c *Controller) current(last *Cycle, h *snapshot.Host, look *wake.Look) bool {
	before := h.Snapshot
	known := c.Memory.Rules.Hosts[h.Name]
	return h.Err == nil && before != nil && known.Answered && known.Lost == "" &&
		look.Snapshot != before && look.Asked.After(last.askedAt[look.Host.Name]) &&
		sameMachine(look.Snapshot, before)
}

// fresh reports whether a look may be acted on: it came just now, and was asked for after the
// outcome of the last order.
func (c *Controller) fresh(host snapshot.Hostname, look *wake.Look) bool {
	return look.Asked.After(c.between.acted[host]) && time.Since(look.Came) <= oldestWake
}

// outcomeCame notes that the outcome of an order came: a snapshot from before that is too old.
func (c *Controller) outcomeCame(host snapshot.Hostname) {
	if c.between.acted == nil {
		c.between.acted = make(map[snapshot.Hostname]time.Time)
	}
	c.between.acted[host] = time.Now()
}

// label is the number of a cycle, unique in its run.
func (cycle *Cycle) label() string {
	if cycle.Early == 0 {
		return fmt.Sprint(cycle.Number)
	}
	return fmt.Sprintf("%d.%d", cycle.Number, cycle.Early)
}
