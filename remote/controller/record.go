package controller

import (
	"fmt"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote"
)

// Recorder keeps the record; *audit.Log is one.
type Recorder interface {
	Append(...audit.Record) error
	// Reserve makes sure that as many bytes can be appended.
	Reserve(bytes int64) error
}

// bytesPerItem is what the records of an item's outcome need at most, except from a
// host that returns a lot of text.
const bytesPerItem = 2 << 10

// recordBefore records what was found and decided, and what is about to be sent,
// before anything is sent. It returns the records of the latter, which may be written
// even when there is an error.
func (c *Controller) recordBefore(cycle *Cycle, events []enforce.Event, visits map[string]*visit) ([]audit.Record, error) {
	if c.Audit == nil {
		return nil, nil
	}
	if err := c.Audit.Append(); err != nil {
		return nil, err // writing the records that still wait is enough
	}
	var records []audit.Record
	for i := range events {
		if r, ok := recordOf(&events[i], cycle); ok {
			records = append(records, r)
		}
	}
	for _, d := range cycle.Duplicates {
		if d.New {
			records = append(records, audit.Record{Kind: audit.KindDuplicate, Host: d.Name, Text: d.String()})
		}
	}
	items := itemsOf(cycle, visits)
	if err := c.record(cycle, append(records, items...)); err != nil || len(items) == 0 {
		return items, err
	}
	return items, c.Audit.Reserve(int64(len(items)) * bytesPerItem)
}

// itemsOf are the records of what is sent, in the order of the plan.
func itemsOf(cycle *Cycle, visits map[string]*visit) []audit.Record {
	var items []audit.Record
	for i := range cycle.Plan.Reports {
		if v := visits[string(cycle.Plan.Reports[i].Host)]; v != nil {
			items = append(items, v.items...)
		}
	}
	return items
}

// record completes records, and appends them to the log, if there is one.
func (c *Controller) record(cycle *Cycle, records []audit.Record) error {
	now := c.Now().UTC()
	for i := range records { // for the hooks, too
		records[i].Time, records[i].Run, records[i].Cycle = now, c.run, cycle.Number
	}
	if c.Audit == nil || len(records) == 0 {
		return nil
	}
	return c.Audit.Append(records...)
}

// recordNothingDone closes the records of what was not sent after all.
func (c *Controller) recordNothingDone(cycle *Cycle, items []audit.Record) {
	outcomes := make([]enforce.Outcome, len(items))
	for i := range outcomes {
		outcomes[i] = enforce.Outcome{Status: enforce.StatusFailed, Reason: fmt.Sprintf("nothing was done: %v", cycle.Unrecorded)}
	}
	_ = c.record(cycle, audit.OutcomeRecords(items, outcomes)) // they wait to be written with the rest
}

// recordOf is the record of an event; false if there is none.
func recordOf(e *enforce.Event, cycle *Cycle) (audit.Record, bool) {
	r := audit.Record{Host: e.Host, Text: e.Text}
	switch e.Kind {
	case enforce.EventNew, enforce.EventChanged, enforce.EventDue:
		r = findingRecord(e, cycle)
		acts := r.Decision == enforce.DecisionAct // recorded in each cycle; the others once
		return r, !e.Resumed && acts == (e.Kind == enforce.EventDue)
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

func findingRecord(e *enforce.Event, cycle *Cycle) audit.Record {
	f := e.Finding
	return audit.Record{
		Kind: audit.KindFinding, IDs: []string{f.ID}, Rule: f.Rule, Decision: cycle.Decision(f), Host: f.Host, User: f.User, UID: f.UID,
		PID: f.PID, EID: f.EID, Text: f.Line(), Finding: f,
	}
}
