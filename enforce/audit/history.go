package audit

import (
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// Entry is something that was done to somebody's work, and why: a line of
// `genv remote history` and `genv history`.
type Entry struct {
	Time   time.Time             `json:"time"`
	Host   snapshot.Hostname     `json:"host,omitempty"`
	User   snapshot.Username     `json:"user,omitempty"`
	UID    *snapshot.UID         `json:"uid,omitempty"`
	PID    snapshot.PID          `json:"pid,omitempty"`
	EID    snapshot.EnvID        `json:"eid,omitempty"`
	Device *snapshot.DeviceIndex `json:"device,omitempty"`
	Status enforce.Status        `json:"status"`
	Reason string                `json:"reason,omitempty"`
	// Why are the findings because of which it was done, and Notified says when
	// the user was told of the first of them; zero for never.
	Why      []string  `json:"why"`
	IDs      []string  `json:"ids"`
	Notified time.Time `json:"told,omitzero"`
	Report   string    `json:"report,omitempty"`
	By       string    `json:"by,omitempty"` // on a host: the account that had it done
}

// History joins the records of a log to what was done and why, the oldest
// first. A report without an outcome is of a controller that ended before it
// heard: nobody knows what came of it.
func History(path string, q Filter) ([]Entry, Damage, error) {
	j := joiner{told: map[string]time.Time{}, open: map[item]*Entry{}}
	damage, err := Scan(path, func(r *Record) error { j.add(r, &q); return nil })
	list := make([]Entry, 0, len(j.list))
	for _, e := range j.list {
		list = append(list, *e)
	}
	return list, damage, err
}

// item is an item of a report.
type item struct {
	report string
	pid    snapshot.PID
	eid    snapshot.EnvID
	device snapshot.DeviceIndex
}

type joiner struct {
	told map[string]time.Time // when its user was told first
	open map[item]*Entry      // reports without an outcome yet
	list []*Entry
}

func (j *joiner) add(r *Record, q *Filter) {
	switch r.Kind {
	case KindCleared:
		for _, id := range r.IDs {
			delete(j.told, id)
		}
	case KindNotified:
		for _, id := range r.IDs {
			if _, before := j.told[id]; !before && r.Reason == "" {
				j.told[id] = r.Time
			}
		}
	case KindReport, KindOutcome:
		if q.Matches(r) {
			j.action(r)
		}
	}
}

func (j *joiner) action(r *Record) {
	key := item{report: r.Report, pid: r.PID}
	if r.Device != nil {
		key.eid, key.device = r.EID, *r.Device
	}
	e := j.open[key]
	if e == nil {
		e = &Entry{
			Time: r.Time, Host: r.Host, User: r.User, UID: r.UID, PID: r.PID, EID: r.EID, Device: r.Device, Report: r.Report,
			IDs: r.IDs, Why: r.Why, By: r.By, Status: enforce.StatusUnknown, Reason: "genv ended before it knew what came of it",
		}
		for _, id := range r.IDs {
			if told := j.told[id]; e.Notified.IsZero() || !told.IsZero() && told.Before(e.Notified) {
				e.Notified = told
			}
		}
		j.list = append(j.list, e)
		j.open[key] = e
	}
	if r.Kind == KindOutcome {
		e.Time, e.Status, e.Reason = r.Time, r.Status, r.Reason
		delete(j.open, key)
	}
}
