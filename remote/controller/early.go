package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller/wake"
	"github.com/seed-3119e985/genv/snapshot"
)

// Events waits until something may have changed on a host; see wake.Link.
type Events interface {
	Await(ctx context.Context, host remote.Host, done func(woke bool, err error))
}

// between is what a controller does between two full cycles: it judges hosts that woke.
type between struct {
	wake  *wake.Watch // nil for none
	spent safety.Spent
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
	c.between.spent.Begin(cycle.Plan.Actions())
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
	if cycle.Asked = judged.Judged; len(cycle.Asked) == 0 {
		return
	}
	cycle.Start, cycle.Plan = now, c.last.Plan.With(judged.Plan, func(h snapshot.Hostname) bool { return cycle.Asked[h] })
	c.last = cycle
	c.between.count++
	next := c.Memory
	next.Rules = judged.Memory
	if len(judged.Events) == 0 {
		c.Memory = next
		return
	}
	c.act(ctx, cycle, next, judged.Events, nil)
}

// earlyCycle is the last cycle with new snapshots of the hosts that woke, and these hosts.
// Only a snapshot counts that is new, and younger than the last full one, of a host that
// answered the last full cycle and is still the same machine. Where it is too old to be judged,
// the host is asked again: it won't wake for what it has shown already.
func (c *Controller) earlyCycle(looks []wake.Look) (*Cycle, []snapshot.Host) {
	cycle := *c.last
	cycle.Early++
	cycle.Earlier, cycle.Asked = 0, nil
	cycle.Duplicates, cycle.Results, cycle.Notified, cycle.Records, cycle.Unrecorded = nil, nil, nil, nil, nil
	cycle.Cluster.Hosts, cycle.askedAt = slices.Clone(cycle.Cluster.Hosts), maps.Clone(cycle.askedAt)
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
			c.between.wake.Again(look.Host)
			continue
		}
		h.Snapshot, cycle.askedAt[look.Host.Name] = look.Snapshot, look.Asked
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

func sameMachine(a, b *snapshot.Snapshot) bool {
	return a.BootID == b.BootID && a.StateFolder == b.StateFolder
}
