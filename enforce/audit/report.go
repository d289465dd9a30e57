package audit

import (
	"github.com/seed-3119e985/genv/enforce"
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
