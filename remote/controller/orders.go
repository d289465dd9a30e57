package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// sentOrder is an order on its way: ordersOf makes it, dispatch has it sent, and learnOutcome learns from it.
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
	hosts := make(map[snapshot.Hostname]*snapshot.Host, len(c.fleet.Cluster.Hosts))
	for i := range c.fleet.Cluster.Hosts {
		hosts[c.fleet.Cluster.Hosts[i].Name] = &c.fleet.Cluster.Hosts[i]
	}
	orders := make([]*sentOrder, len(plan.Orders))
	for i := range plan.Orders {
		planned, h := &plan.Orders[i], hosts[plan.Orders[i].Host]
		planned.Order.ID = fmt.Sprintf("%s/%s/%s", c.round.Run, c.round.label(), planned.Host)
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

// send waits for the outcome even if ctx ends in the meantime.
func (o *sentOrder) send(ctx context.Context, link Link, host remote.Host) (err error) {
	if ctx.Err() != nil {
		return remote.Errorf(remote.Cancelled, "stopped before the order was sent: %w", context.Cause(ctx))
	}
	o.execution, err = link.Execute(context.WithoutCancel(ctx), host, o.Order)
	return err
}

// learnOutcome remembers what came of an order.
func (c *Controller) learnOutcome(o *sentOrder, d *Delivery) Learned {
	result := OrderResult{
		Cycle: d.round, Host: o.Host, Order: o.Order, Execution: o.execution, Err: d.Err, Findings: o.findings,
	}
	result.Execution.Lines = shownLines(o.Order, o.execution.Lines)
	outcomes := result.outcomes()
	c.round.Results = append(c.round.Results, result)
	c.Memory.Rules = c.Memory.Rules.End(o.Order.ID).Learn(o.OfHost, outcomes, c.Now())
	return Learned{Records: audit.OutcomeRecords(o.items, outcomes), Events: []enforce.Event{{
		Kind: enforce.EventOutcome, Host: o.Host, Order: &result.Order, Findings: o.findings,
		Lines: result.Execution.Lines, Warnings: o.execution.Warnings, Outcomes: outcomes, Err: d.Err,
	}}}
}

// nothingDone are the classes of errors after which it is certain that the host did nothing.
var nothingDone = []remote.Class{
	remote.Unreachable, remote.HostKey, remote.HostKeyChanged, remote.Auth, remote.Sudo, remote.SudoRefused,
	remote.GenvMissing, remote.Version, remote.Configuration, remote.Cancelled, remote.Replaced,
}

// outcomes are what came of each item; of 1.4.3, which reports none, by its lines.
func (r *OrderResult) outcomes() []order.Outcome {
	if r.Err == nil && r.Execution.Outcomes != nil {
		return r.Execution.Outcomes
	}
	fallback := order.Outcome{Status: order.StatusUnknown, Reason: "the host did not say what came of it"}
	if r.Err != nil {
		fallback.Reason = r.Err.Error()
		if errors.Is(r.Err, agent.ErrNotSent) || errors.Is(r.Err, agent.ErrRefused) ||
			slices.Contains(nothingDone, remote.ClassOf(r.Err)) {
			fallback.Status = order.StatusFailed
		}
	}
	var list []order.Outcome
	said := func(item order.Outcome, lines []string, status order.OutcomeStatus) order.Outcome {
		isAbout := func(l string) bool { return slices.Contains(lines, strings.TrimSpace(l)) }
		if slices.ContainsFunc(r.Execution.Lines, isAbout) {
			item.Status = status
			return item
		}
		item.Status, item.Reason = fallback.Status, fallback.Reason
		return item
	}
	for _, d := range r.Order.Detach {
		item := order.Outcome{Device: d.Device, EID: d.Environment.EID}
		list = append(list, said(item, []string{d.String(), d.Raw()}, order.StatusDetached))
	}
	for _, t := range r.Order.Terminate {
		item := order.Outcome{PID: t.Process.PID, EID: t.Process.EID}
		list = append(list, said(item, []string{t.String(), t.Raw()}, order.StatusSignalled))
	}
	return list
}

// maxHostWords is how many characters of a line of a host's own are shown.
const maxHostWords = 128

// shownLines are a host's lines as they are shown: those about the order in genv's own words, since 1.4.3 prints names
// that users choose, and environments that processes claim; all others quoted.
func shownLines(o order.Order, lines []string) []string {
	shown := make(map[string]string)
	for i := range o.Detach {
		d := &o.Detach[i]
		shown[d.String()], shown[d.Raw()] = d.String(), d.String()
	}
	for i := range o.Terminate {
		t := &o.Terminate[i]
		shown[t.String()], shown[t.Raw()] = t.String(), t.String()
		kill := "Killing " + t.Object()
		shown[kill] = kill
	}
	list := slices.Clone(lines)
	for i, line := range list {
		own, known := shown[strings.TrimSpace(line)]
		if !known {
			own = "The host says: " + text.Quoted(strings.TrimSpace(line), maxHostWords)
		}
		list[i] = own
	}
	return list
}
