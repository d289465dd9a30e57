// Package controller runs the loop of `genv remote enforce`: at each event it judges what every host
// reports, records, sends orders, and learns what came of them.
//
//	fleet := controller.Survey{Hosts: hosts, Link: pool, Fanout: 64}
//	c := &controller.Controller{Options: controller.Options{Survey: fleet, Policy: policy, Now: time.Now}}
//	err := controller.Loop(ctx, c, controller.LoopOptions{Interval: 10 * time.Second}, show)
//
// Loop handles one event after the other (events.go) by Controller.enforce. A tick is the event that asks all hosts
// (ask.go); it begins a Round. Only Delivery.Send changes hosts, apart from leases and allowances, which hosts get with
// the request for a snapshot. The package prints nothing: Sinks get the Round and its events.
package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/rules"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// Options are the hosts, the policy, and what a controller does with its findings.
type Options struct {
	Survey
	// Policy is what is enforced; without one the controller only collects snapshots.
	Policy enforce.Policy
	// DryRun neither changes hosts nor saves the memory. It judges once all hosts have answered.
	DryRun bool
	Now    func() time.Time

	// Audit keeps the record; nil for none. Without ActUnrecorded, what can't be recorded isn't done.
	Audit         Recorder
	ActUnrecorded bool
	// Store, if set, keeps the memory: before deliveries, when operators ask for something, and otherwise every 10 s.
	Store      Store
	OnSave     func(error) // if set, is called in the background after each save
	Companions []Companion // plan deliveries that aren't orders, such as messages to users
	Sinks      []Sink      // see Sink
}

// Controller enforces a policy on a fleet.
type Controller struct {
	Options
	Memory FleetMemory

	fleet      knownFleet
	round      Round
	background background
}

// Configure sets other options. Orders under way continue. It must not be called while Loop enforces.
func (c *Controller) Configure(options Options) {
	c.Options = options
	c.fleet = c.fleet.of(options.Hosts)
}

// enforce handles an event: it judges all hosts and carries out the plan. It returns the hosts to ask at once.
func (c *Controller) enforce(ctx context.Context, e *loopEvent) (ask []snapshot.Hostname) {
	c.learn(e.ended)
	c.see(e.answers)
	c.operate(ctx, e.actions)
	if !c.mayJudge(ctx, e.complete) {
		return nil
	}
	now := c.Now()
	policy := c.Memory.Operator.Policy(c.Policy, now)
	plan, next, events := rules.Judge(policy, c.judgedCluster(now), c.Memory.Rules, now)
	orders := makeOrders(plan, &c.round)
	c.round.add(plan, policy, now)
	defer func() { c.round.Plan.Counts = nil }() // it refers to the rules' views of all hosts
	if err := c.recordFirst(events, c.fleet.Duplicates, itemsOf(orders)); err != nil {
		return plan.Ask // what can't be recorded isn't done: the memory stays as it was
	}
	c.remember(next, orders)
	deliveries, effects := c.planDeliveries(events, orders)
	safe := c.save(ctx, len(deliveries) > 0) // a crash must not lead to a second order
	c.background.dispatch(ctx, c.Link, &c.fleet, deliveries, safe)
	if len(effects.Events) > 0 || c.round.Early == 0 { // after the first of a round only if there is something to say
		c.emit(&c.round, effects.Events)
	}
	return slices.Concat(plan.Ask, effects.Ask)
}

func (c *Controller) learn(ended []*Delivery) {
	if len(ended) == 0 {
		return
	}
	var all Effects
	slices.SortStableFunc(ended, func(a, b *Delivery) int {
		return cmp.Or(cmp.Compare(a.round, b.round), cmp.Compare(a.position, b.position))
	})
	for _, d := range ended {
		all.add(d.learner.Learn(&c.round, d))
	}
	for _, r := range all.results {
		sent := order.OfHost{Host: r.Host, Order: r.Order}
		c.Memory.Rules = c.Memory.Rules.Learn(sent, r.outcomes(), c.Now())
	}
	c.round.Results = append(c.round.Results, all.results...)
	c.Memory.Rules, c.background.unsaved = c.Memory.Rules.WarnAgain(all.Unwarned), true
	c.record(c.beyond()) // of the last hour, before bounded begins another
	c.round.Records = c.bounded(all.Records)
	c.record(c.round.Records)
	c.emit(&c.round, all.Events)
}

// see puts answers into the fleet. Without a policy, as on a standby, nothing else happens, so it emits the round.
func (c *Controller) see(answers []hostAnswer) {
	c.fleet = c.fleet.with(answers, c.Memory.Machines, c.Link.About)
	c.round.see(&c.fleet)
	if c.Policy != nil {
		c.round.Stopped = c.StopAtFailure && len(c.fleet.Cluster.Failed()) > 0
		return
	}
	c.Memory.Machines, c.fleet.judged = c.fleet.machines, true
	if len(answers) > 0 {
		c.emit(&c.round, nil)
	}
}

// mayJudge reports whether to judge now. A dry run, and the first judgement of a round with StopAtFailure, wait until
// all hosts have answered or failed.
func (c *Controller) mayJudge(ctx context.Context, complete bool) bool {
	switch {
	case c.Policy == nil, c.round.Stopped, !c.fleet.answered(), ctx.Err() != nil, remote.MayBegin(ctx) != nil:
		return false
	case c.DryRun:
		return complete
	}
	return complete || !c.StopAtFailure || c.round.judged > 0
}

// judgedCluster is the cluster to judge. In a dry run answers don't grow old while they wait for the others.
func (c *Controller) judgedCluster(now time.Time) snapshot.Cluster {
	cluster := c.fleet.Cluster
	if c.DryRun {
		cluster.Hosts = slices.Clone(cluster.Hosts)
		for i := range cluster.Hosts {
			cluster.Hosts[i].Took = now.Sub(cluster.Hosts[i].AskedAt)
		}
	}
	return cluster
}

func (c *Controller) remember(next enforce.Memory, orders []*sentOrder) {
	if c.DryRun {
		next.Tally = safety.Tally{} // nothing was done
	}
	for _, o := range orders {
		next = next.Begin(o.OfHost, c.Now())
	}
	c.fleet.judged = true
	c.Memory.Rules, c.Memory.Machines, c.background.unsaved = next, c.fleet.machines, true
	c.round.sent, c.round.Items = c.round.Plan.Orders, itemsOf(orders)
}

// planDeliveries returns the deliveries after a judgement, orders last, with all events and the hosts to ask.
func (c *Controller) planDeliveries(events []enforce.Event, orders []*sentOrder) (
	deliveries []*Delivery, all Effects,
) {
	c.round.About = func(host snapshot.Hostname) agent.About { return c.Link.About(c.fleet.reached[host]) }
	all.Events = events
	for _, companion := range c.Companions {
		planned, effects := companion.Plan(&c.round, events)
		for _, d := range planned {
			d.learner = companion
		}
		c.record(effects.Records)
		deliveries, all.Ask = append(deliveries, planned...), append(all.Ask, effects.Ask...)
		all.Events = append(effects.Events, all.Events...)
	}
	for _, o := range orders {
		deliveries = append(deliveries, &Delivery{Host: o.Host, Send: o.send, learner: o})
		all.Events = append(all.Events, enforce.Event{
			Kind: enforce.EventActing, Host: o.Host, Order: &o.Order, Findings: o.findings,
		})
	}
	for _, d := range deliveries {
		d.round = c.round.Number
	}
	return deliveries, all
}

// save saves a changed memory in the background, if it may, and it is urgent or the last save was 10 s ago. Else it
// returns nil.
func (c *Controller) save(ctx context.Context, urgent bool) *saving {
	since := c.Now().Sub(c.background.saved)
	if !c.background.unsaved || c.Store == nil || c.DryRun || remote.MayBegin(ctx) != nil ||
		!urgent && since >= 0 && since < saveEvery {
		return nil
	}
	store, told, ctx := c.Store, c.OnSave, context.WithoutCancel(ctx)
	saved, err := c.Encode(c.Now())
	c.background.saved, c.background.unsaved = c.Now(), false
	return c.background.writer.Write(func() error {
		if err == nil {
			err = store.Save(ctx, saved)
		}
		if told != nil {
			told(err)
		}
		return err
	})
}

func (c *Controller) emit(round *Round, events []enforce.Event) {
	for _, sink := range c.Sinks {
		sink.Consume(round, events)
	}
}

// Encode encodes the memory, with those of the companions.
func (c *Controller) Encode(now time.Time) (Saved, error) {
	memory, err := c.Memory.withCompanions(c.Companions)
	if err != nil {
		return Saved{}, fmt.Errorf("encode the memory: %w", err)
	}
	return memory.Encode(now)
}
