package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// sentOrder is an order that is sent to its host, and what the host says then.
type sentOrder struct {
	*order.OfHost
	cycle     int
	items     []audit.Record    // as the log has them
	findings  []enforce.Finding // the reasons for it
	execution agent.Execution
}

// newOrder is an order with what is recorded of it. asked is when its host was asked for the snapshot.
func newOrder(cycle *Cycle, o *order.OfHost, s *snapshot.Snapshot, asked time.Time) *sentOrder {
	audit.Explain(&o.Order, o.Host, s, asked)
	items := audit.OrderRecords(o.Host, o.Order, s)
	for i := range items {
		items[i].Order = o.Order.ID
	}
	return &sentOrder{OfHost: o, cycle: cycle.Number, items: items}
}

// ordersOf are the orders of a cycle's plan; in a dry run there are none. It gives each its ID.
func ordersOf(cycle *Cycle) []*sentOrder {
	if cycle.DryRun || len(cycle.Plan.Orders) == 0 {
		return nil
	}
	findings := make(map[string]*enforce.Finding, len(cycle.Plan.Findings))
	for i := range cycle.Plan.Findings {
		findings[cycle.Plan.Findings[i].ID] = &cycle.Plan.Findings[i]
	}
	snapshots := make(map[snapshot.Hostname]*snapshot.Snapshot, len(cycle.Cluster.Hosts))
	for i := range cycle.Cluster.Hosts {
		snapshots[cycle.Cluster.Hosts[i].Name] = cycle.Cluster.Hosts[i].Snapshot
	}
	orders := make([]*sentOrder, len(cycle.Plan.Orders))
	for i := range cycle.Plan.Orders {
		planned := &cycle.Plan.Orders[i]
		planned.Order.ID = fmt.Sprintf("%s/%s/%s", cycle.Run, cycle.label(), planned.Host)
		orders[i] = newOrder(cycle, planned, snapshots[planned.Host], cycle.taken(planned.Host))
		for _, id := range findingIDs(planned.Order) {
			if f := findings[id]; f != nil {
				orders[i].findings = append(orders[i].findings, *f)
			}
		}
	}
	return orders
}

// taken is when a host was asked for its snapshot.
func (cycle *Cycle) taken(host snapshot.Hostname) time.Time {
	return cmp.Or(cycle.askedAt[cycle.answered[host].Name], cycle.Start)
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

// acting is the event for sending it.
func (o *sentOrder) acting() enforce.Event {
	return enforce.Event{Kind: enforce.EventActing, Host: o.Host, Order: &o.Order, Findings: o.findings}
}

func (o *sentOrder) to() snapshot.Hostname { return o.Host }

// send waits for the outcome even if ctx ends meanwhile.
func (o *sentOrder) send(ctx context.Context, link Link, host remote.Host) (err error) {
	if ctx.Err() != nil {
		return remote.Errorf(remote.Cancelled, "stopped before the order was sent: %w", context.Cause(ctx))
	}
	o.execution, err = link.Execute(context.WithoutCancel(ctx), host, o.Order)
	return err
}

// learn remembers the outcomes.
func (o *sentOrder) learn(c *Controller, cycle *Cycle, err error) learned {
	result := OrderResult{Cycle: o.cycle, Host: o.Host, Order: o.Order, Execution: o.execution, Err: err, Findings: o.findings}
	result.Execution.Lines = shownLines(o.Order, o.execution.Lines)
	outcomes := result.outcomes()
	cycle.Results = append(cycle.Results, result)
	c.outcomeCame(o.Host)
	c.Memory.Rules = c.Memory.Rules.End(o.Order.ID).Learn(*o.OfHost, outcomes, c.Now())
	return learned{
		records: audit.OutcomeRecords(o.items, outcomes), events: []enforce.Event{result.event(outcomes)},
	}
}
