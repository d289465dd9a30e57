package controller

import (
	"fmt"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// GuardMemory is how far the controller has read each host's list of denials.
type GuardMemory map[snapshot.Hostname]GuardSeen

// GuardSeen is a place in a host's list of denials.
type GuardSeen struct {
	Epoch string `json:"epoch"`
	Seq   uint64 `json:"seq"`
	ID    uint64 `json:"id"` // of the latest one that an event was about
}

// learn returns events about the denials that are new, and remembers them.
func (m *GuardMemory) learn(a *guardAsk) []enforce.Event {
	if a.answer.Epoch == "" {
		return nil
	}
	seen := (*m)[a.name]
	if seen.Epoch != a.answer.Epoch {
		seen = GuardSeen{Epoch: a.answer.Epoch}
	}
	events := seen.events(a)
	seen.Seq = a.answer.Seq
	if *m == nil {
		*m = make(GuardMemory)
	}
	(*m)[a.name] = seen
	return events
}

// events are about the denials that are new: one that goes on is not.
func (s *GuardSeen) events(a *guardAsk) (events []enforce.Event) {
	more, latest := 0, s.ID
	for i := range a.answer.Denials {
		d := &a.answer.Denials[i]
		if d.ID <= s.ID {
			continue
		}
		latest = max(latest, d.ID)
		if len(events) == enforce.MaxEventsPerHost {
			more++
			continue
		}
		f := &enforce.Finding{Host: a.name, User: d.User, UID: &d.UID, PID: d.PID, Since: d.First}
		if d.Index != nil {
			f.Devices = []snapshot.DeviceIndex{*d.Index}
		}
		events = append(events, enforce.Event{Kind: enforce.EventDenied, Host: a.name, Finding: f, Text: denialText(d)})
	}
	s.ID = latest
	if more > 0 {
		events = append(events, enforce.Event{Kind: enforce.EventGuard, Host: a.name, Text: fmt.Sprintf("and %d more denials by the kernel guard", more)})
	}
	return events
}

// denialText is a denial as people read it.
func denialText(d *agent.GuardDenial) string {
	device := fmt.Sprintf("the device with minor number %d", d.Minor)
	if d.Index != nil {
		device = "device " + d.Index.String()
	}
	what := "opened " + device
	if d.Denied {
		what = "was denied " + device
	}
	who := ""
	if d.PID != 0 {
		who = fmt.Sprintf(": process %d", d.PID)
		if d.Name != "" {
			who += " (" + text.Shown(d.Name) + ")"
		}
	}
	return fmt.Sprintf("User %s %s, which is not attached to them%s", gpus.ShownUser(gpus.UserName(d.User, &d.UID)), what, who)
}

// guardRecord is the record of an event about a guard.
func guardRecord(e *enforce.Event) audit.Record {
	r := audit.Record{Kind: audit.KindGuard, Host: e.Host, Text: e.Text}
	if e.Kind == enforce.EventDenied {
		f := e.Finding
		r.Kind, r.User, r.UID, r.PID = audit.KindDenied, f.User, f.UID, f.PID
		if len(f.Devices) > 0 {
			r.Device = &f.Devices[0]
		}
	}
	return r
}
