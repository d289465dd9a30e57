package controller

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// checkChangeable refuses to change what rules would not change either.
func (c *Controller) checkChangeable(r *row) error {
	policy := c.Memory.Operator.Policy(c.Policy, c.Now())
	reason, exempt := policy.Exempt(r.subject())
	if r.process != nil && !exempt { // as for rules, one that uses exempt devices alone
		exempt = r.process.UsesOnly(func(index snapshot.DeviceIndex) (is bool) {
			if d := r.host.Snapshot.Device(index); d != nil {
				reason, is = policy.Exempt(enforce.Subject{Host: r.host.Name, Device: d})
			}
			return is
		})
	}
	if exempt {
		return operator.Refuse(operator.Protected, "End the exemption first, or do it on the host.", "it is exempt: %s", reason)
	}
	if p := r.process; p != nil {
		if err := c.checkProcess(p); err != nil {
			return err
		}
	}
	underWay := 0
	for i := range c.Memory.Rules.UnderWay {
		o := &c.Memory.Rules.UnderWay[i]
		if o.Host != r.host.Name {
			continue
		}
		if underWay++; r.isIn(&o.Order) {
			return operator.Refuse(operator.Unable, "Wait for its outcome.", "an order about it is under way already")
		}
	}
	if underWay >= enforce.MaxOrdersUnderWay {
		return operator.Refuse(operator.Busy, "Wait for the outcomes.", "%d orders are under way on host %s", underWay, r.host.Name)
	}
	return nil
}

func (c *Controller) checkProcess(p *snapshot.Process) error {
	switch {
	case p.Protected != "" && !slices.Contains(c.Policy.Fleet().Unprotected, p.Protected):
		return operator.Refuse(operator.Protected, "Stop it on the host, as a service.", "process %d is the daemon %s, which is never ended", p.PID, p.Protected)
	case p.UID != nil && *p.UID == 0 && p.Container == "":
		return operator.Refuse(operator.Protected, "End it on the host.", "process %d belongs to root", p.PID)
	case p.EnvUnknown && !p.EnvOverwritten:
		return operator.Refuse(operator.Unable, tryLater, "the environment of process %d could not be read", p.PID)
	}
	return nil
}

// isIn reports whether an order is about the row.
func (r *row) isIn(o *order.Order) bool {
	if r.process != nil {
		return slices.ContainsFunc(o.Terminate, func(t order.Termination) bool {
			return t.Process.PID == r.process.PID && t.Process.Start == r.process.Start
		})
	}
	return slices.ContainsFunc(o.Detach, func(d order.Detachment) bool {
		return d.Device == r.device && d.Environment.EID == r.environment.EID
	})
}

// change sends a host the order of an action that ends a process or takes a device away.
func (c *Controller) change(ctx context.Context, r *request, row *row) error {
	if err := c.checkChangeable(row); err != nil {
		return err
	}
	cycle := c.aside()
	o := newOrder(cycle, c.orderOf(r, row, cycle.Number), row.host.Snapshot, c.last.taken(row.host.Name))
	o.request = r
	for i := range o.items {
		o.items[i].By = r.who.String()
	}
	if err := c.recordAction(cycle, o.items); err != nil {
		return err
	}
	c.Memory.Rules = c.Memory.Rules.Begin(*o.OfHost, c.Now())
	c.send(ctx, cycle, []errand{o}, nil)
	text := fmt.Sprintf("%s. %s", o.items[0].Text, o.items[0].Why[0])
	c.show([]enforce.Event{o.acting(), {Kind: EventOperator, Host: o.Host, Text: text}})
	r.begun(o.items[0].Text + ": under way. An event says what came of it.")
	return nil
}

// orderOf is the order of an action, with the policy's grace for the host.
func (c *Controller) orderOf(r *request, row *row, number int) *order.OfHost {
	settings := c.Policy.Settings(enforce.Query{Host: row.host.Name, Labels: row.host.Labels, At: c.Now()})
	o := order.Order{Options: settings.OrderOptions(c.Policy.Fleet()), ID: c.id(row.host.Name, number)}
	because, why := []string{o.ID}, []string{fmt.Sprintf("Requested by %s: %s", r.who, r.action.Reason)}
	if row.process != nil {
		inside := false // it ends for whom it belongs to, not for being outside
		o.Terminate = []order.Termination{{Process: *row.process, Because: because, Why: why, InNoEnvironment: &inside}}
	} else {
		o.Detach = []order.Detachment{{Device: row.device, Environment: *row.environment, Because: because, Why: why}}
	}
	o.Name(row.host.Snapshot.Devices)
	return &order.OfHost{Host: row.host.Name, Order: o}
}

// warn sends a message to the user of a row, within the limits for all messages.
func (c *Controller) warn(ctx context.Context, r *request, row *row) error {
	uid, known := row.uid()
	if !known {
		return operator.Refuse(operator.Unable, "Ask on the host.", "host %s does not say to which user it belongs", row.host.Name)
	}
	cycle := c.aside()
	n := notify.Notification{
		Host: row.host.Name, UID: uid, ID: c.id(row.host.Name, cycle.Number),
		Text:   fmt.Sprintf("%s writes about %s: %s", r.who, row, r.action.Reason),
		Advice: enforce.Rule("").Advice(),
	}
	n.User = row.user(uid)
	n.Details = notify.NoticeItem{ID: n.ID, Host: string(n.Host), Text: text.OneLine(n.Text), At: c.Now(), Advice: n.Advice}
	record := RecordOfAction(r.who, &r.action, fmt.Sprintf("%s warns the user of %s", r.who, row))
	record.IDs, record.UID = []string{n.ID}, &uid
	if err := c.recordAction(cycle, []audit.Record{record}); err != nil {
		return err
	}
	now := c.Now()
	all := map[snapshot.Hostname][]notify.Notification{n.Host: {n}}
	letters := c.mail(cycle, all, now)
	messages := c.batch(n.Host, all[n.Host], now)
	messages.request = r
	c.send(ctx, cycle, []errand{messages}, letters)
	c.show([]enforce.Event{{Kind: EventOperator, Host: n.Host, ID: n.ID, Text: record.Text + ": " + r.action.Reason}})
	r.begun("The message is on its way.")
	return nil
}
