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

// visit is what is sent to a host in a cycle: messages to its users, then an order.
type visit struct {
	cycle    int
	position int               // in the plan
	name     snapshot.Hostname // the host's name in the cluster
	host     remote.Host       // under the name that answered
	messages batch
	guard    *guardAsk         // nil for none
	order    *order.OfHost     // nil for none
	items    []audit.Record    // the order's items, as the log has them
	findings []enforce.Finding // the reasons for the order
	request  *request          // of the operator who wants it; nil for none

	// The outcome, valid after deliver.
	deliveries []Delivery
	execution  agent.Execution
	err        error
}

// visitsFor are the visits that carry the orders of a cycle, in their order; in a dry
// run there are none. It gives each order its ID.
func visitsFor(cycle *Cycle) []*visit {
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
	visits := make([]*visit, len(cycle.Plan.Orders))
	for i := range cycle.Plan.Orders {
		o := &cycle.Plan.Orders[i]
		o.Order.ID = fmt.Sprintf("%s/%s/%s", cycle.Run, cycle.label(), o.Host)
		v := newVisit(cycle, o.Host, i)
		audit.Explain(&o.Order, o.Host, snapshots[o.Host], cmp.Or(cycle.askedAt[v.host.Name], cycle.Start))
		v.order, v.items = o, audit.OrderRecords(o.Host, o.Order, snapshots[o.Host])
		for j := range v.items {
			v.items[j].Order = o.Order.ID
		}
		for _, id := range findingIDs(o.Order) {
			if f := findings[id]; f != nil {
				v.findings = append(v.findings, *f)
			}
		}
		visits[i] = v
	}
	return visits
}

func newVisit(cycle *Cycle, name snapshot.Hostname, position int) *visit {
	return &visit{cycle: cycle.Number, position: position, name: name, host: cycle.answered[name]}
}

// complete adds messages and what guards are asked to the visits with orders. A host without an order gets a
// visit of its own.
func complete(cycle *Cycle, visits []*visit, messages map[snapshot.Hostname]batch) []*visit {
	known := make(map[snapshot.Hostname]*visit, len(visits))
	for _, v := range visits {
		known[v.name] = v
	}
	to := func(host snapshot.Hostname) *visit {
		if known[host] == nil {
			known[host] = newVisit(cycle, host, len(cycle.Plan.Orders))
			visits = append(visits, known[host])
		}
		return known[host]
	}
	for host, b := range messages {
		if !b.empty() {
			to(host).messages = b
		}
	}
	for _, a := range cycle.guards {
		to(a.name).guard = a
	}
	return visits
}

// itemsOf are the items of the visits' orders, as the log has them.
func itemsOf(visits []*visit) (items []audit.Record) {
	for _, v := range visits {
		items = append(items, v.items...)
	}
	return items
}

// deliver sends the messages and the order, and waits for the order's outcome even if ctx
// ends meanwhile.
func (v *visit) deliver(ctx context.Context, link Link) {
	if err := remote.MayBegin(ctx); err != nil {
		v.guard.Unsent(err)
	} else {
		v.guard.Send(ctx, link)
	}
	if err := remote.MayBegin(ctx); err != nil {
		v.deliveries = v.messages.unsent(err)
	} else {
		longer, cancel := remote.Outlasting(ctx, messagesWithin)
		v.deliveries = v.messages.send(longer, link, v.host)
		cancel()
	}
	switch err := remote.MayBegin(ctx); {
	case v.order == nil:
	case err != nil:
		v.err = err
	case ctx.Err() != nil:
		v.err = remote.Errorf(remote.Cancelled, "stopped before the order was sent: %w", context.Cause(ctx))
	default:
		v.execution, v.err = link.Execute(context.WithoutCancel(ctx), v.host, v.order.Order)
	}
}

// messagesWithin is how long messages may take when the run ends meanwhile: whether they arrived
// wouldn't be known otherwise, and the next controller would send them once more.
const messagesWithin = 2 * time.Second

// acting returns the event for sending the order.
func (v *visit) acting() enforce.Event {
	return enforce.Event{Kind: enforce.EventActing, Host: v.order.Host, Order: &v.order.Order, Findings: v.findings}
}

// result returns the order with its outcome.
func (v *visit) result() OrderResult {
	r := OrderResult{Cycle: v.cycle, Host: v.order.Host, Order: v.order.Order, Execution: v.execution, Err: v.err, Findings: v.findings}
	r.Execution.Lines = shownLines(r.Order, r.Execution.Lines)
	return r
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
