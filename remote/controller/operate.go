package controller

import (
	"context"
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/rules"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// EventOperator is about an operator's action, or an exemption that ended.
const EventOperator enforce.EventKind = "operator"

// operate ends expired exemptions, and carries out actions of operators, which are recorded first, as plans are.
// Operators get their answer when the memory is saved.
func (c *Controller) operate(ctx context.Context, actions []*pendingAction) {
	if c.Policy != nil {
		c.expire()
	}
	for _, r := range actions {
		if r.ctx.Err() != nil {
			continue // the operator has left, and may not want it any more
		}
		var saved *saving
		r.text, saved, r.err = c.carryOut(ctx, r)
		c.background.writer.work.Go(func() {
			if err := saved.wait(); err != nil {
				r.text += fmt.Sprintf(" (but %v)", err)
			}
			close(r.done)
		})
	}
}

// expire ends expired exemptions, even if that can't be recorded.
func (c *Controller) expire() {
	next := c.Memory.Operator
	left, expired := next.Exemptions.Follow(c.fleet.Cluster).Expire(c.Now())
	next.Exemptions = left
	c.setOperator(next)
	if len(expired) == 0 {
		return
	}
	var events []enforce.Event
	var records []audit.Record
	for i := range expired {
		e := &expired[i]
		text := fmt.Sprintf("The exemption of %s has ended (%s by %s)", e.Who.String(), e.Reason, e.By)
		events = append(events, enforce.Event{Kind: EventOperator, Host: e.Host, Text: text})
		records = append(records, audit.Record{
			Kind: audit.KindOperator, Action: "expired", Host: e.Host, User: e.User, Device: e.Device,
			Rule: e.Rule, Text: text,
		})
	}
	c.record(records)
	c.background.unsaved = true // not urgent: after a crash they end again
	c.emit(&c.round, events)
}

func (c *Controller) carryOut(ctx context.Context, r *pendingAction) (text string, _ *saving, _ error) {
	switch {
	case r.action.Kind == operator.Explain && c.Policy != nil:
		return strings.Join(c.explain(r.action.Host, r.action.User), "\n"), nil, nil
	case c.Policy == nil || remote.MayBegin(ctx) != nil:
		return "", nil, operator.Refuse(operator.Unable, "Ask the controller that leads: `genv remote doctor --leader "+
			"URL` shows it.", "this controller doesn't act now")
	case c.DryRun:
		return "", nil, operator.Refuse(operator.Unable, "Run the controller without --dry-run.",
			"this controller runs with --dry-run: it does nothing")
	case c.Audit == nil && !c.ActUnrecorded:
		return "", nil, operator.Refuse(operator.Unable, "Run the controller with --audit-log FILE.",
			"this controller keeps no record of who asks for what")
	case ctx.Err() != nil:
		return "", nil, operator.Refuse(operator.NotStarted, "Start the controller again.", "the controller is ending")
	}
	return c.changeState(ctx, r)
}

// explain returns what caps count for a user on a host, and which exemptions of operators apply.
func (c *Controller) explain(host snapshot.Hostname, user snapshot.Username) []string {
	now := c.Now()
	plan, _, _ := rules.Judge(c.Memory.Operator.Policy(c.Policy, now), c.judgedCluster(now), c.Memory.Rules, now)
	lines := plan.Counts.Explain(host, user)
	for i := range c.Memory.Operator.Exemptions {
		e := &c.Memory.Operator.Exemptions[i]
		isUser := e.User == "" || c.Policy.Account(e.User) == c.Policy.Account(user)
		if isUser && (e.Host == "" || e.Host == host) {
			lines = append(lines, "exempt: "+text.OneLine(e.String()))
		}
	}
	return lines
}

func (c *Controller) changeState(ctx context.Context, r *pendingAction) (string, *saving, error) {
	e := r.action.Exemption()
	if err := e.CheckRule(c.Policy); err != nil && r.action.Kind == operator.Exempt {
		return "", nil, operator.Refuse(operator.Invalid, "Correct the rule.", "%v", err)
	}
	next, text, err := c.Memory.Operator.After(r.who, &r.action, c.Now())
	if err != nil {
		return "", nil, err
	}
	next.Exemptions = next.Exemptions.Follow(c.fleet.Cluster)
	for _, h := range c.fleet.Cluster.Answered() {
		if r.action.Kind == operator.Exempt && e.Device != nil && h.Name == e.Host && h.Snapshot.Device(*e.Device) == nil {
			text += fmt.Sprintf(" (%s has no GPU %s now)", h.Name, e.Device)
		}
	}
	items := []audit.Record{RecordOfAction(r.who, &r.action, text)}
	if err := c.recordFirst(nil, nil, items); err != nil {
		return "", nil, operator.Refuse(operator.Unable, "Make room for the record, or run with --act-unrecorded.",
			"nothing was done, since it could not be recorded: %v", err)
	}
	c.setOperator(next)
	if c.Store == nil {
		text += " (but not saved, so it is lost at a restart: this run keeps no memory; --state-dir DIR gives it a " +
			"folder)"
	}
	c.background.unsaved = true
	c.emit(&c.round, []enforce.Event{{Kind: EventOperator, Host: r.action.Host, Text: text}})
	return text, c.save(ctx, true), nil
}

// RecordOfAction returns the record of an operator's action.
func RecordOfAction(who operator.Author, a *operator.Action, text string) audit.Record {
	return audit.Record{
		Kind: audit.KindOperator, Action: string(a.Kind), By: who.String(), Host: a.Host, User: a.User,
		Device: a.Device, Rule: a.Rule, Text: text, Reason: a.Reason,
	}
}

func (c *Controller) setOperator(s operator.State) {
	c.Memory.Operator, c.round.Hold, c.round.Exemptions = s, s.Hold, s.Exemptions
}
