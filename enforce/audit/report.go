package audit

import (
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/decision"
	"github.com/seed-3119e985/genv/snapshot"
)

// ReportRecords are the records of a report's items, in the order of its
// outcomes. The snapshot, which may be nil, has the names of users.
func ReportRecords(host snapshot.Hostname, r enforce.Report, s *snapshot.Snapshot) []Record {
	records := make([]Record, 0, len(r.Detach)+len(r.Terminate))
	for i := range r.Detach {
		d := &r.Detach[i]
		record := Record{
			Kind: KindReport, IDs: d.Because, Host: host, Device: &d.Device, EID: d.Environment.EID, User: d.Environment.Username,
			Text: d.String(), Why: d.Why, Judged: d.Judged,
		}
		if !d.Environment.OwnerMismatch {
			record.UID = &d.Environment.UID
		}
		records = append(records, record)
	}
	for i := range r.Terminate {
		t := &r.Terminate[i]
		_, uid := t.Process.Reported()
		records = append(records, Record{
			Kind: KindReport, IDs: t.Because, Host: host, PID: t.Process.PID, Start: t.Process.Start, EID: t.Process.EID,
			Container: t.Process.ContainerText(),
			UID:       uid, User: userOf(&t.Process, s), Text: t.String(), Why: t.Why, Judged: t.Judged,
		})
	}
	return records
}

// userOf is the name of a process's user. Where the process has none, it is that
// of an environment with the same uid or, without a uid, of the process's own.
func userOf(p *snapshot.Process, s *snapshot.Snapshot) snapshot.Username {
	user, uid := p.Reported()
	if user != "" || s == nil {
		return user
	}
	for i := range s.Environments {
		e := &s.Environments[i]
		if e.OwnerMismatch {
			continue
		}
		if uid != nil && e.UID == *uid || p.UID == nil && p.EID != "" && e.EID == p.EID {
			return e.Username
		}
	}
	return ""
}

// OutcomeRecords are the records of a report's outcomes, made from those of its
// items.
func OutcomeRecords(items []Record, outcomes []enforce.Outcome) []Record {
	records := make([]Record, len(items))
	for i, r := range items {
		r.Kind, r.Text, r.Judged = KindOutcome, "", nil
		if i < len(outcomes) {
			r.Status, r.Reason = outcomes[i].Status, outcomes[i].Reason
		}
		records[i] = r
	}
	return records
}

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
