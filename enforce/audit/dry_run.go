package audit

import (
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/decision"
	"github.com/seed-3119e985/genv/snapshot"
)

// StatusDryRun is the Status of an Entry about what a dry run would have done.
const StatusDryRun enforce.Status = "dry-run"

// undoneKey names an action that a dry run left undone.
type undoneKey struct {
	host snapshot.Hostname
	itemKey
}

// wouldAct lists what would have been done because of a finding.
func (j *joiner) wouldAct(r *Record, filter *Filter) {
	for _, p := range r.Finding.Terminate {
		item := *r
		item.Host, item.PID, item.Device = p.Host, p.PID, nil
		j.leftUndone(&item, fmt.Sprintf("Would terminate process %d", p.PID), filter)
	}
	for _, d := range r.Finding.Detach {
		item := *r
		item.Host, item.PID, item.EID, item.Device = d.Host, 0, d.EID, &d.Index
		j.leftUndone(&item, fmt.Sprintf("Would detach device %s of environment %s", d.Index, d.EID), filter)
	}
}

// leftUndone lists one action. It is listed once while its findings last, also if it is because of
// several ones.
func (j *joiner) leftUndone(r *Record, what string, filter *Filter) {
	if !filter.Notices || !filter.Matches(r) {
		return
	}
	key := undoneKey{host: r.Host, itemKey: keyOf("", r.PID, r.EID, r.Device)}
	e := j.undone[key]
	if e == nil {
		e = &Entry{
			ID: decision.WarningID(r.IDs[0]), Time: r.Time, Host: r.Host, User: r.User, UID: r.UID, PID: r.PID, EID: r.EID, Device: r.Device,
			Status: StatusDryRun, Text: what,
		}
		j.undone[key] = e
		j.append(e)
	}
	if !slices.Contains(e.IDs, r.IDs[0]) {
		e.IDs, e.Why = append(e.IDs, r.IDs[0]), append(e.Why, r.Text)
		e.Rules = (&Record{IDs: e.IDs}).rules()
	}
}

// isOver forgets what would have been done because of a finding.
func (j *joiner) isOver(id string) {
	for key, e := range j.undone {
		if slices.Contains(e.IDs, id) {
			delete(j.undone, key)
		}
	}
}
