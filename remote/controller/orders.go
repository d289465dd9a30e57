package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// sentOrder is an order that is sent to its host, and what the host says then.
type sentOrder struct {
	order.OfHost
	items     []audit.Record    // as the log has them
	findings  []enforce.Finding // the reasons for it
	execution agent.Execution
}

// ordersOf are the orders of a cycle's plan; in a dry run there are none. It gives each its ID.
func (c *Controller) ordersOf(plan enforce.Plan) []*sentOrder {
	if c.DryRun || len(plan.Orders) == 0 {
		return nil
	}
	findings := make(map[string]*enforce.Finding, len(plan.Findings))
	for i := range plan.Findings {
		findings[plan.Findings[i].ID] = &plan.Findings[i]
	}
	hosts := make(map[snapshot.Hostname]*snapshot.Host, len(c.fleet.cluster.Hosts))
	for i := range c.fleet.cluster.Hosts {
		hosts[c.fleet.cluster.Hosts[i].Name] = &c.fleet.cluster.Hosts[i]
	}
	orders := make([]*sentOrder, len(plan.Orders))
	for i := range plan.Orders {
		planned, h := &plan.Orders[i], hosts[plan.Orders[i].Host]
		planned.Order.ID = fmt.Sprintf("%s/%s/%s", c.round.Run, c.round.label(), planned.Host)
		audit.Explain(&planned.Order, planned.Host, h.Snapshot, h.AskedAt)
		o := &sentOrder{OfHost: *planned, items: audit.OrderRecords(planned.Host, planned.Order, h.Snapshot)}
		for k := range o.items {
			o.items[k].Order = planned.Order.ID
		}
		for _, id := range findingIDs(planned.Order) {
			if f := findings[id]; f != nil {
				o.findings = append(o.findings, *f)
			}
		}
		orders[i] = o
	}
	return orders
}

// findingIDs are the findings because of which an order is sent, each once.
func findingIDs(o order.Order) []string {
	var ids []string
	for i := range o.Detach {
		ids = append(ids, o.Detach[i].Because...)
	}
	for i := range o.Terminate {
		ids = append(ids, o.Terminate[i].Because...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// itemsOf are the items of orders, as the log has them.
func itemsOf(orders []*sentOrder) (items []audit.Record) {
	for _, o := range orders {
		items = append(items, o.items...)
	}
	return items
}

// delivery is what is sent to the host. It waits for the outcome even if ctx ends in the meantime.
func (o *sentOrder) delivery() *Delivery {
	return &Delivery{Host: o.Host, order: o, Send: func(ctx context.Context, link Link, host remote.Host) (err error) {
		if ctx.Err() != nil {
			return remote.Errorf(remote.Cancelled, "stopped before the order was sent: %w", context.Cause(ctx))
		}
		o.execution, err = link.Execute(context.WithoutCancel(ctx), host, o.Order)
		return err
	}}
}

// acting is the event for sending it.
func (o *sentOrder) acting() enforce.Event {
	return enforce.Event{Kind: enforce.EventActing, Host: o.Host, Order: &o.Order, Findings: o.findings}
}

// learnOutcome remembers what came of an order.
func (c *Controller) learnOutcome(d *Delivery) Learned {
	o := d.order
	result := OrderResult{Cycle: d.cycle, Host: o.Host, Order: o.Order, Execution: o.execution, Err: d.Err, Findings: o.findings}
	result.Execution.Lines = shownLines(o.Order, o.execution.Lines)
	outcomes := result.outcomes()
	c.round.Results = append(c.round.Results, result)
	c.Memory.Rules = c.Memory.Rules.End(o.Order.ID).Learn(o.OfHost, outcomes, c.Now())
	return Learned{Records: audit.OutcomeRecords(o.items, outcomes), Events: []enforce.Event{result.event(outcomes)}}
}
