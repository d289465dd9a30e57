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

// sentOrder is an order to send: makeOrders makes it, dispatch sends it, and Learn returns its result.
type sentOrder struct {
	order.OfHost
	items     []audit.Record    // its items as records
	findings  []enforce.Finding // the reasons for it
	execution agent.Execution
}

// makeOrders returns the orders of a plan; none in a dry run. It also sets their IDs and what they were judged by in the
// plan, before round.add copies it.
func makeOrders(plan enforce.Plan, round *Round) []*sentOrder {
	if round.DryRun || len(plan.Orders) == 0 {
		return nil
	}
	findings := make(map[string]*enforce.Finding, len(plan.Findings))
	for i := range plan.Findings {
		findings[plan.Findings[i].ID] = &plan.Findings[i]
	}
	hosts := make(map[snapshot.Hostname]*snapshot.Host, len(round.Cluster.Hosts))
	for i := range round.Cluster.Hosts {
		hosts[round.Cluster.Hosts[i].Name] = &round.Cluster.Hosts[i]
	}
	orders := make([]*sentOrder, len(plan.Orders))
	for i := range plan.Orders {
		planned, h := &plan.Orders[i], hosts[plan.Orders[i].Host]
		planned.Order.ID = fmt.Sprintf("%s/%s/%s", round.Run, round.label(), planned.Host)
		o := new(sentOrder)
		for _, id := range findingIDs(planned.Order) {
			if f := findings[id]; f != nil {
				o.findings = append(o.findings, *f)
			}
		}
		audit.Explain(&planned.Order, planned.Host, h.Snapshot, h.AskedAt)
		o.OfHost, o.items = *planned, audit.OrderRecords(planned.Host, planned.Order, h.Snapshot)
		for k := range o.items {
			o.items[k].Order = planned.Order.ID
		}
		orders[i] = o
	}
	return orders
}

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

func itemsOf(orders []*sentOrder) (items []audit.Record) {
	for _, o := range orders {
		items = append(items, o.items...)
	}
	return items
}

// send sends the order, and waits for the outcome even if ctx ends in the meantime.
func (o *sentOrder) send(ctx context.Context, link Link, host remote.Host) (err error) {
	if ctx.Err() != nil {
		return remote.Errorf(remote.Cancelled, "stopped before the order was sent: %w", context.Cause(ctx))
	}
	o.execution, err = link.Execute(context.WithoutCancel(ctx), host, o.Order)
	return err
}

func (o *sentOrder) Learn(_ *Round, d *Delivery) Effects {
	result := OrderResult{
		Cycle: d.round, Host: o.Host, Order: o.Order, Execution: o.execution, Err: d.Err, Findings: o.findings,
	}
	result.Execution.Lines = shownLines(o.Order, o.execution.Lines)
	outcomes := result.outcomes()
	event := enforce.Event{
		Kind: enforce.EventOutcome, Host: o.Host, Order: &result.Order, Findings: o.findings,
		Lines: result.Execution.Lines, Warnings: o.execution.Warnings, Outcomes: outcomes, Err: d.Err,
	}
	return Effects{
		Records: audit.OutcomeRecords(o.items, outcomes), Events: []enforce.Event{event}, results: []OrderResult{result},
	}
}
