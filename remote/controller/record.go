package controller

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
)

// Recorder keeps the record; *audit.Log is one.
type Recorder interface {
	Append(...audit.Record) error
	// Reserve makes sure that so many bytes can be appended.
	Reserve(bytes int64) error
}

// recordFirst records findings, and items before they are done. After an error nothing may be done. Append of nothing
// writes records that still wait: if that fails, the findings come again with the next judgement.
func (c *Controller) recordFirst(events []enforce.Event, duplicates []Duplicate, items []audit.Record) error {
	if c.Audit == nil {
		return nil
	}
	err := c.Audit.Append()
	if err == nil || c.ActUnrecorded {
		err = cmp.Or(c.writeAhead(events, duplicates, items), err)
		if err != nil && !c.ActUnrecorded {
			c.notSent(items, err)
		}
	}
	if c.round.Unrecorded = err; c.ActUnrecorded {
		return nil
	}
	return err
}

const (
	// bytesPerItem is the most that the records of an item's outcome need, unless the host returns a lot of text.
	bytesPerItem = 2 << 10
	// recordsAnHour is how many bytes of findings are recorded an hour for a host, a ninth of it about one user.
	recordsAnHour = 4 << 20
)

// writeAhead writes findings, within the quotas, and items, and reserves room for the outcomes.
func (c *Controller) writeAhead(events []enforce.Event, duplicates []Duplicate, items []audit.Record) error {
	before := c.beyond() // of the last hour, which spend forgets
	var records []audit.Record
	for i := range events {
		if r, ok := recordOf(&events[i], &c.round); ok {
			records = append(records, r)
		}
	}
	records = slices.Concat(before, c.bounded(records), c.beyond()) // the latter counts what bounded left out
	for _, d := range duplicates {
		if d.New {
			records = append(records, audit.Record{Kind: audit.KindDuplicate, Host: d.Name, Text: d.String()})
		}
	}
	if err := c.write(append(records, items...)); err != nil || len(items) == 0 {
		return err
	}
	return c.Audit.Reserve(int64(len(items)) * bytesPerItem)
}

func recordOf(e *enforce.Event, round *Round) (audit.Record, bool) {
	r := audit.Record{Host: e.Host, Text: e.Text}
	switch e.Kind {
	case enforce.EventNew, enforce.EventChanged, enforce.EventDue:
		f := e.Finding
		r = audit.Record{
			Kind: audit.KindFinding, IDs: []string{f.ID}, Rule: f.Rule, Decision: round.Decision(f), Host: f.Host,
			User: f.User, UID: f.UID, PID: f.PID, EID: f.EID, Text: f.Line(), Finding: f,
		}
		isDue := e.Kind == enforce.EventDue // findings are recorded whenever they are acted on, and others once
		return r, !e.Resumed && isDue == (r.Decision == enforce.DecisionAct)
	case enforce.EventMore:
		r.Kind, r.Text = audit.KindFinding, fmt.Sprintf("and %d more findings on this host", e.Count)
	case enforce.EventOver:
		r.Kind, r.IDs = audit.KindCleared, []string{e.ID}
	case enforce.EventHostLost:
		r.Kind, r.Reason = audit.KindFailed, fmt.Sprintf("%s: %v", remote.ClassOf(e.Err), e.Err)
	case enforce.EventHeld:
		r.Kind, r.User, r.Reason = audit.KindOverLimit, e.Held.User, e.Held.Because
	default:
		return r, false
	}
	return r, !e.Resumed
}

// bounded leaves out records beyond the hourly quotas of their users on their hosts.
func (c *Controller) bounded(records []audit.Record) []audit.Record {
	if c.Audit == nil {
		return records
	}
	return slices.DeleteFunc(records, func(r audit.Record) bool { return !isDone(&r) && !c.spend(&r) })
}

// isDone reports whether a record is about an action, and not only about a finding.
func isDone(r *audit.Record) bool {
	switch r.Kind {
	case audit.KindFinding:
		return r.Decision == enforce.DecisionAct
	case audit.KindNotified:
		return r.Reason == "" // the message was shown
	case audit.KindCleared:
		return false
	}
	return true
}

// spend counts a record, and reports whether the quotas have room for it.
func (c *Controller) spend(r *audit.Record) bool {
	host, user := r.Host, r.User
	if r.Finding != nil {
		host = r.Finding.Affects()
	}
	if user == "" && r.UID != nil {
		user = snapshot.Username(fmt.Sprintf("uid %d", *r.UID))
	}
	line, err := json.Marshal(r)
	_, _, ok := c.Memory.recorded.Spend(host, user, len(line), 0, recordsAnHour, c.Now())
	return ok || err != nil
}

// beyond returns records that count those left out.
func (c *Controller) beyond() (records []audit.Record) {
	for _, over := range c.Memory.recorded.Over(c.Now()) {
		text := fmt.Sprintf("and %d more records within an hour, of findings that are left out", over.Count)
		if !over.Ended {
			text += "; more are counted once in an hour"
		}
		records = append(records, audit.Record{Kind: audit.KindFinding, Host: over.Host, User: over.User, Text: text})
	}
	return records
}

func (c *Controller) notSent(items []audit.Record, err error) {
	failed := order.Outcome{Status: order.StatusFailed, Reason: fmt.Sprintf("nothing was done: %v", err)}
	records := audit.OutcomeRecords(items, slices.Repeat([]order.Outcome{failed}, len(items)))
	for i := range records {
		if items[i].Kind == audit.KindOperator {
			records[i].Kind, records[i].Text = audit.KindOperator, items[i].Text
		}
	}
	_ = c.write(records) // after an error they wait for the next Append
}

func (c *Controller) record(records []audit.Record) {
	if err := c.write(records); err != nil {
		c.round.Unrecorded = err
	}
}

// write completes records, which hooks need too, and appends them to the log, if there is one.
func (c *Controller) write(records []audit.Record) error {
	now := c.Now().UTC()
	for i := range records {
		records[i].Time, records[i].Run, records[i].Cycle = now, c.round.Run, c.round.Number
	}
	if c.Audit == nil || len(records) == 0 {
		return nil
	}
	return c.Audit.Append(records...)
}
