package audit

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/enforce/decision"
)

// Decided returns the entries about the decision with an id, of a list with notices: an
// action; or the warnings about a finding, and what was done because of it.
func Decided(entries []Entry, id string) []Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e Entry) bool {
		return e.ID != id && !slices.ContainsFunc(e.IDs, func(finding string) bool { return decision.WarningID(finding) == id })
	})
}

// LastAction returns the last action, of a report, in a list; none if there is none.
func LastAction(entries []Entry) []Entry {
	for i, e := range slices.Backward(entries) {
		if e.Report != "" {
			return entries[i : i+1]
		}
	}
	return nil
}

// Decided is an item of a report, before its outcome is known, as every output shows it.
func (r *Record) Decided() decision.Record {
	e := Entry{
		ID: decision.ID(r.Report, r.PID, r.EID, r.Device), Time: r.Time, Host: r.Host, User: r.User, UID: r.UID,
		Text: r.Text, Why: r.Why, By: r.By, Judged: r.Judged,
	}
	return e.Decision()
}

// Decision is the entry as every output shows it.
func (e *Entry) Decision() decision.Record {
	r := decision.Record{
		ID: e.ID, Time: e.Time, Host: e.Host, User: string(userOfEntry(e)), What: e.Text, Status: e.Status, Reason: e.Reason,
		Why: e.Why, Notified: e.Notified, By: e.By, Judged: e.Judged,
	}
	if e.Action == ActionNotice {
		r.Why, r.Status = nil, cmp.Or(e.Status, "notified")
	}
	return r
}
