package controller

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// Options are what a controller is told: the hosts, the policy, and what it does with what it finds.
type Options struct {
	Asker
	// Policy is what is enforced; without one hosts are only looked at.
	Policy enforce.Policy
	// DryRun does everything except change hosts.
	DryRun bool
	Now    func() time.Time

	// Audit keeps the record; nil for none. What cannot be recorded is not
	// done, unless ActUnrecorded.
	Audit         Recorder
	ActUnrecorded bool
	// Store, if set, keeps the memory: before orders are sent, when operators ask for something, and otherwise every
	// 10 seconds. OnSave, if set, is told in the background what came of each time.
	Store  Store
	OnSave func(error)
	// Companions plan what else is sent because of a cycle, such as messages to users.
	Companions []Companion
	// Sinks get the events of every cycle that counts, in their order.
	Sinks []Sink
}

// Controller enforces a policy on a fleet.
type Controller struct {
	Options
	Memory FleetMemory

	fleet      fleet
	round      Cycle // what was found and done since the last tick
	background background
}

// background is what goes on without the loop: deliveries, and saves of the memory.
type background struct {
	dispatcher
	saver
}

// Configure has a controller go on with other options, and with the orders under way. It must not be
// called while a cycle runs.
func (c *Controller) Configure(options Options) {
	c.Options = options
	c.fleet = c.fleet.of(options.Hosts)
}

// cycle is what happens at an event: what came in is judged with all that is known, and acted on.
func (c *Controller) cycle(ctx context.Context, e *event) {
	c.learn(e.ended)
	c.operate(ctx, e.requests)
	if !c.see(ctx, e) {
		return
	}
	now := c.Now()
	plan, next, events := enforce.Judge(c.policy(now), c.fleet.cluster, c.Memory.Rules, now)
	orders := c.ordersOf(plan)
	c.round.add(plan)
	if err := c.recordFirst(&c.round, events, itemsOf(orders)); err != nil {
		return // nothing is done that can't be recorded: the cycle doesn't count
	}
	c.remember(next, orders)
	deliveries, said := c.plan(events, orders)
	c.background.dispatch(ctx, c, deliveries, c.save(ctx, len(deliveries) > 0)) // a crash must not lead to a second order
	if len(said) > 0 || c.round.Early == 0 {
		c.emit(&c.round, said)
	}
}

// see takes in the answers of hosts, and reports whether they are to be judged. A dry run is judged when all hosts have
// answered, and so is at first what ends if one fails.
func (c *Controller) see(ctx context.Context, e *event) bool {
	c.fleet = c.fleet.with(e.answers, c.Memory.Machines, c.Link.About)
	c.round.see(&c.fleet, &c.Memory)
	if c.Policy == nil {
		c.lookOnly(e)
		return false
	}
	c.expire(ctx, c.Now())
	switch {
	case over(ctx), !c.fleet.answered():
		return false
	case c.StopAtFailure && len(c.fleet.cluster.Failed()) > 0:
		c.round.Stopped = true
		return false
	case c.DryRun && !e.complete, c.StopAtFailure && !e.complete && c.round.judged == 0:
		return false
	}
	if c.DryRun {
		c.fleet.cluster = c.fleet.asNew()
	}
	return true
}

// lookOnly shows what came in.
func (c *Controller) lookOnly(e *event) {
	c.Memory.Machines = c.fleet.machines
	if len(e.answers) > 0 {
		c.emit(&c.round, nil)
	}
}

// remember makes the next memory the present one, with the orders that are going to be sent.
func (c *Controller) remember(next enforce.Memory, orders []*sentOrder) {
	if c.DryRun {
		next.Interval = safety.Interval{} // nothing was done
	}
	for _, o := range orders {
		next = next.Begin(o.OfHost, c.Now())
	}
	c.Memory.Rules, c.Memory.Machines, c.background.unsaved = next, c.fleet.machines, true
}

// over reports whether nothing may be begun any more: the run ends, or this controller doesn't lead.
func over(ctx context.Context) bool { return ctx.Err() != nil || remote.MayBegin(ctx) != nil }

// policy is that of the file, with what operators asked for.
func (c *Controller) policy(now time.Time) enforce.Policy {
	return c.Memory.Operator.Policy(c.Policy, now)
}

// plan returns what is sent because of a cycle: what companions want, and then the orders. The events are all of the
// cycle.
func (c *Controller) plan(events []enforce.Event, orders []*sentOrder) (deliveries []*Delivery, all []enforce.Event) {
	cycle := &c.round
	cycle.Policy, cycle.Now, cycle.Items = c.policy(c.Now()), c.Now(), itemsOf(orders)
	cycle.About = func(host snapshot.Hostname) agent.About { return c.Link.About(c.fleet.reached[host]) }
	all = events
	for _, companion := range c.Companions {
		planned, said := companion.Plan(cycle, events)
		for _, d := range planned {
			d.by = companion
		}
		c.record(cycle, said.Records)
		deliveries, all = append(deliveries, planned...), append(said.Events, all...)
	}
	for _, o := range orders {
		deliveries, all = append(deliveries, o.delivery()), append(all, o.acting())
	}
	return deliveries, all
}

// emit passes events on.
func (c *Controller) emit(cycle *Cycle, events []enforce.Event) {
	for _, sink := range c.Sinks {
		sink.Consume(cycle, events)
	}
}

// learn records what came of deliveries, remembers it, and passes the events on.
func (c *Controller) learn(ended []*Delivery) {
	if len(ended) == 0 {
		return
	}
	var all Learned
	for _, d := range inOrder(ended) {
		if d.order != nil {
			all.add(c.learnOutcome(d))
		} else {
			all.add(d.by.Learn(&c.round, d))
		}
	}
	c.Memory.Rules, c.background.unsaved = c.Memory.Rules.WarnAgain(all.Unwarned), true
	record := c.recordWriter()
	c.round.Records = record.bounded(all.Records)
	if err := record.write(&c.round, c.round.Records); err != nil {
		c.round.Unrecorded = err
	}
	c.emit(&c.round, all.Events)
}

// begin begins a round, in which all hosts are asked. It has what came of earlier ones since the last was shown.
func (c *Controller) begin() {
	before := &c.round
	c.round = Cycle{
		Standby: c.Policy == nil, Run: before.Run, Number: before.Number + 1, Start: c.Now(), DryRun: c.DryRun, Cluster: before.Cluster,
		Earlier: before.Early, Results: before.Results, Notified: before.Notified, unrecorded: before.unrecorded,
	}
	if c.round.Run == "" {
		c.round.Run = rand.Text()[:8]
	}
	if c.fleet.round = max(c.fleet.round, c.Memory.Rules.Round); c.fleet.round == 0 || !c.Memory.ReadOnly {
		c.fleet.round++
	}
	c.round.operator(c.Memory.Operator)
}

// end ends a round, and returns it as it is shown.
func (c *Controller) end(took time.Duration) Cycle {
	cycle := &c.round
	cycle.Took, cycle.Ended, cycle.UnderWay = took, true, c.Memory.Rules.UnderWay
	cycle.operator(c.Memory.Operator)
	unrecorded := ""
	if cycle.Unrecorded != nil {
		unrecorded = cycle.Unrecorded.Error()
	}
	cycle.RecordChanged, cycle.unrecorded = unrecorded != cycle.unrecorded, unrecorded
	ended := *cycle
	c.emit(&ended, nil)
	cycle.Ended, cycle.Results, cycle.Notified, cycle.Records = false, nil, nil, nil
	return ended
}
