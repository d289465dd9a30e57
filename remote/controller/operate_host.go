package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/decision"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/notify/texts"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// change sends a host the report of an action that ends a process or takes a device away.
func (c *Controller) change(ctx context.Context, r *request, row *row) error {
	if err := c.checkChangeable(row); err != nil {
		return err
	}
	cycle := c.aside()
	report := c.reportOf(r, row, cycle.Number)
	v := &visit{cycle: cycle.Number, name: row.host.Name, host: row.answered, report: &report, request: r}
	decision.Explain(&report.Report, report.Host, row.host.Snapshot, c.Now())
	v.items = audit.ReportRecords(report.Host, report.Report, row.host.Snapshot)
	for i := range v.items {
		v.items[i].Report, v.items[i].By = report.Report.ID, r.who.String()
	}
	if err := c.recordFirst(cycle, v.items); err != nil {
		return err
	}
	c.send(ctx, []enforce.HostReport{report}, map[snapshot.Hostname]*visit{v.name: v}, nil)
	text := fmt.Sprintf("%s. %s", v.items[0].Text, v.items[0].Why[0])
	c.show([]enforce.Event{v.acting(), {Kind: EventOperator, Host: v.name, Text: text}})
	r.begun(v.items[0].Text + ": under way. An event says what came of it.")
	return nil
}

// reportOf is the report of an action, with the policy's grace for the host.
func (c *Controller) reportOf(r *request, row *row, number int) enforce.HostReport {
	settings := c.Policy.Settings(enforce.Query{Host: row.host.Name, Labels: row.host.Labels, At: c.Now()})
	report := enforce.Report{Grace: settings.Grace, Kill: settings.Kill, Unprotected: c.Policy.Fleet().Unprotected, ID: c.id(row.host.Name, number)}
	because, why := []string{report.ID}, []string{fmt.Sprintf("Requested by %s: %s", r.who, r.action.Reason)}
	if row.process != nil {
		inside := false // it ends for whom it belongs to, not for being outside
		report.Terminate = []enforce.Termination{{Process: *row.process, Because: because, Why: why, InNoEnvironment: &inside}}
	} else {
		report.Detach = []enforce.Detachment{{Device: row.device, Environment: *row.environment, Because: because, Why: why}}
	}
	return enforce.HostReport{Host: row.host.Name, Report: report}
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
		Advice: notify.Advice(""),
	}
	n.User = row.user(uid)
	n.Details = texts.Finding{ID: n.ID, Host: string(n.Host), Text: text.OneLine(n.Text), At: c.Now(), Advice: n.Advice}
	record := RecordOfAction(r.who, &r.action, fmt.Sprintf("%s warns the user of %s", r.who, row))
	record.IDs, record.UID = []string{n.ID}, &uid
	if err := c.recordFirst(cycle, []audit.Record{record}); err != nil {
		return err
	}
	now := c.Now()
	all := map[snapshot.Hostname][]notify.Notification{n.Host: {n}}
	letters := c.mail(cycle, all, now)
	b := admitAll(&c.Memory.Messages, all, now)[n.Host]
	b.text = c.terminalText
	v := &visit{cycle: cycle.Number, name: n.Host, host: row.answered, messages: b, request: r}
	c.send(ctx, nil, map[snapshot.Hostname]*visit{v.name: v}, letters)
	c.show([]enforce.Event{{Kind: EventOperator, Host: n.Host, ID: n.ID, Text: record.Text + ": " + r.action.Reason}})
	r.begun("The message is on its way.")
	return nil
}

// String names what an action is about.
func (r *row) String() string {
	if p := r.process; p != nil {
		return fmt.Sprintf("process %d%s", p.PID, p.Describe())
	}
	return fmt.Sprintf("device %s of environment %s", r.device, r.environment.EID.Shown())
}

// answer answers the operator for whom a visit was made, when it has ended.
func (v *visit) answer() {
	if v.request == nil {
		return
	}
	var outcomes []enforce.Outcome
	if v.report != nil {
		result := v.result()
		outcomes = result.outcomes()
	}
	var parts []string
	for _, o := range outcomes {
		text := string(o.Status)
		if o.Reason != "" {
			text += ": " + o.Reason
		}
		parts = append(parts, text)
	}
	for _, d := range v.deliveries {
		switch {
		case errors.Is(d.Err, errSuppressed):
			v.request.refuse(operator.Refuse(operator.Unable, "Try again in an hour.", "the user was sent the messages of an hour already"))
			return
		case d.Err != nil:
			parts = append(parts, fmt.Sprintf("the message was not delivered: %v", d.Err))
		case d.Kept:
			parts = append(parts, "the user is not logged in, or takes no messages (mesg n): it is shown at the next login")
		case d.Terminals == 0:
			parts = append(parts, "the user is not logged in, or takes no messages (mesg n)")
		default:
			parts = append(parts, fmt.Sprintf("shown on %d terminals", d.Terminals))
		}
	}
	v.request.finish(cmp.Or(strings.Join(parts, "; "), "done"))
}
