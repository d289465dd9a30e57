package live

import (
	"cmp"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

// FleetEvent is something that happened, as JSON shows it: an event of the controller about one
// finding, host or item of an order.
type FleetEvent struct {
	Number   uint64              `json:"number"` // 1, 2, … of this controller
	Time     time.Time           `json:"time"`
	Cycle    int                 `json:"cycle"`
	Kind     enforce.EventKind   `json:"kind"`
	Host     snapshot.Hostname   `json:"host,omitempty"`
	User     snapshot.Username   `json:"user,omitempty"`
	PID      snapshot.PID        `json:"pid,omitempty"`
	Rule     enforce.Rule        `json:"rule,omitempty"`
	ID       string              `json:"id,omitempty"` // of the finding
	Decision enforce.Decision    `json:"decision,omitempty"`
	Status   order.OutcomeStatus `json:"status,omitempty"`
	Text     string              `json:"text"` // for people; one line, but not escaped
	// Why is the finding because of which there was an outcome, as people read it.
	Why string `json:"why,omitempty"`
	// Record is the decision about that item; nil if the order has no id.
	Record *audit.Entry `json:"-"`
}

func byID(list []enforce.Finding) map[string]*enforce.Finding {
	m := make(map[string]*enforce.Finding, len(list))
	for i := range list {
		m[list[i].ID] = &list[i]
	}
	return m
}

// eventsOf are what viewers get to see of an event of the controller; before returns the findings of the last cycle.
func eventsOf(e *enforce.Event, before func() map[string]*enforce.Finding) []FleetEvent {
	base := FleetEvent{Kind: e.Kind, Host: e.Host, ID: e.ID, Decision: e.Decision, Text: e.Text}
	switch e.Kind {
	case enforce.EventNew, enforce.EventChanged, enforce.EventDue:
		if acts := e.Decision == enforce.DecisionAct; acts != (e.Kind == enforce.EventDue) {
			return nil // one event is enough to say that a finding is new and acted on at once
		}
		base.about(e.Finding)
	case enforce.EventHostLost:
		base.Text = "no answer"
		if e.Err != nil {
			base.Text = e.Err.Error()
		}
	case enforce.EventHostBack:
		base.Text = "answers again"
	case enforce.EventOver:
		base.Text = "no longer there"
		if f := before()[e.ID]; f != nil {
			base.about(f)
			base.Text = "no longer there: " + base.Text
		}
	case enforce.EventMore:
		base.Text = fmt.Sprintf("%d more findings", e.Count)
	case enforce.EventHeld:
		base.User, base.Host = e.Held.User, e.Held.Host
	case enforce.EventOutcome:
		return outcomes(base, e)
	case enforce.EventActing, enforce.EventNotify:
		return nil // EventDue and EventOutcome say it
	}
	return []FleetEvent{base}
}

// about makes an event one about a finding.
func (e *FleetEvent) about(f *enforce.Finding) {
	e.User, e.PID, e.Rule, e.Host, e.Text = f.User, f.PID, f.Rule, f.Host, f.Line()
}

func outcomes(base FleetEvent, e *enforce.Event) []FleetEvent {
	if e.Err != nil {
		base.Text = "order failed: " + e.Err.Error()
		return []FleetEvent{base}
	}
	because := byID(e.Findings)
	records := audit.OrderRecords(e.Host, *e.Order, nil)
	var list []FleetEvent
	for n, o := range e.Outcomes {
		event := base
		if e.Order.ID != "" && n < len(records) && isAbout(&records[n], o) {
			records[n].Order = e.Order.ID
			event.Record = records[n].Decided()
			event.Record.Status, event.Record.Reason = o.Status, o.Reason
		}
		event.PID, event.Status = o.PID, o.Status
		user, what, ids := itemOf(e.Order, o)
		event.User, event.Text = user, fmt.Sprintf("%s: %s", what, o.Status)
		if o.Reason != "" {
			event.Text += ": " + o.Reason
		}
		for _, id := range ids {
			if f := because[id]; f != nil {
				event.Rule, event.ID, event.Why = f.Rule, f.ID, f.Line()
				event.User = cmp.Or(event.User, f.User) // 1.4.3 doesn't name the user of a process
				break
			}
		}
		list = append(list, event)
	}
	return list
}

// isAbout reports whether an outcome, as the host has it, is that of an item.
func isAbout(item *audit.Record, o order.Outcome) bool {
	return item.PID == o.PID && (o.PID != 0 || item.EID == o.EID && item.Device != nil && *item.Device == o.Device)
}

// itemOf is the item of an order that an outcome is about: its user, what it is, and because of which findings.
func itemOf(sent *order.Order, o order.Outcome) (user snapshot.Username, what string, because []string) {
	what = fmt.Sprintf("GPU %s of environment %s", o.Device, o.EID.Shown())
	if o.PID != 0 {
		what = fmt.Sprintf("process %d", o.PID)
	}
	switch t, d := sent.ItemOf(o); {
	case t != nil:
		return t.Process.Username, what + t.Process.Describe(), t.Because
	case d != nil:
		return d.Environment.Username, what, d.Because
	}
	return "", what, nil
}
