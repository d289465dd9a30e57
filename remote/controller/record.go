package controller

import (
	"fmt"
	"slices"
	"time"

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

// recordWriter completes the records of a cycle, and writes them to the log, if there
// is one.
type recordWriter struct {
	log Recorder // nil for none
	now func() time.Time
}

// record records what became of something, and notes whether that failed.
func (c *Controller) record(cycle *Cycle, records []audit.Record) {
	if err := (recordWriter{c.Audit, c.Now}).write(cycle, records); err != nil {
		cycle.Unrecorded = err
	}
}

// before records what was found and decided, and what is about to be sent, before
// anything is sent. It returns the records of the latter, which may be written even
// when there is an error.
func (w recordWriter) before(cycle *Cycle, events []enforce.Event, visits []*visit) ([]audit.Record, error) {
	if w.log == nil {
		return nil, nil
	}
	if err := w.log.Append(); err != nil {
		return nil, err // writing the records that still wait is enough
	}
	var records, items []audit.Record
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
	for _, v := range visits {
		items = append(items, v.items...)
	}
	if err := w.write(cycle, append(records, items...)); err != nil || len(items) == 0 {
		return items, err
	}
	return items, w.log.Reserve(int64(len(items)) * bytesPerItem)
}

// ahead records what an operator is about to have done.
func (w recordWriter) ahead(cycle *Cycle, items []audit.Record) error {
	if w.log == nil {
		return nil
	}
	err := w.write(cycle, items)
	if err == nil {
		err = w.log.Reserve(int64(len(items)) * bytesPerItem)
	}
	return err
}

// notSent closes the records of what was not sent after all, or not done.
func (w recordWriter) notSent(cycle *Cycle, items []audit.Record) {
	failed := enforce.Outcome{Status: enforce.StatusFailed, Reason: fmt.Sprintf("nothing was done: %v", cycle.Unrecorded)}
	records := audit.OutcomeRecords(items, slices.Repeat([]enforce.Outcome{failed}, len(items)))
	for i := range records {
		if items[i].Kind == audit.KindOperator {
			records[i].Kind, records[i].Text = audit.KindOperator, items[i].Text
		}
	}
	_ = w.write(cycle, records) // they wait to be written with the rest
}

// write completes records, also for the hooks, and appends them to the log.
func (w recordWriter) write(cycle *Cycle, records []audit.Record) error {
	now := w.now().UTC()
	for i := range records {
		records[i].Time, records[i].Run, records[i].Cycle = now, cycle.Run, cycle.Number
	}
	if w.log == nil || len(records) == 0 {
		return nil
	}
	return w.log.Append(records...)
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
	case enforce.EventGuard, enforce.EventDenied:
		r = guardRecord(e)
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
