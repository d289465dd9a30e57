package guards

import (
	"fmt"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote/agent/guarding"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// The events about guards. Their Text says all; a Denied has a Finding with the user, the
// process and the device, and without a rule.
const (
	// Changed: the order for the guard of a host has changed, or what it does.
	Changed enforce.EventKind = "guard"
	// Denied: a user opened a device that isn't attached to them. It was denied, or in
	// mode watch would have been.
	Denied enforce.EventKind = "denied"
)

// Memory is how far the controller has read each host's list of denials.
type Memory map[snapshot.Hostname]Seen

// Seen is a place in a host's list of denials.
type Seen struct {
	Epoch string `json:"epoch"`
	Seq   uint64 `json:"seq"`
	ID    uint64 `json:"id"` // of the latest one that an event was about
}

// learn returns events about the denials that are new, and remembers them.
func (m *Memory) learn(a *Ask) []enforce.Event {
	if a.answer.Epoch == "" {
		return nil
	}
	seen := (*m)[a.name]
	if seen.Epoch != a.answer.Epoch {
		seen = Seen{Epoch: a.answer.Epoch}
	}
	events := seen.events(a)
	seen.Seq = a.answer.Seq
	if *m == nil {
		*m = make(Memory)
	}
	(*m)[a.name] = seen
	return events
}

// events are about the denials that are new: one that goes on is not.
func (s *Seen) events(a *Ask) (events []enforce.Event) {
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
		events = append(events, enforce.Event{Kind: Denied, Host: a.name, Finding: f, Text: line(d)})
	}
	s.ID = latest
	if more > 0 {
		events = append(events, enforce.Event{Kind: Changed, Host: a.name, Text: fmt.Sprintf("and %d more denials by the kernel guard", more)})
	}
	return events
}

// line is a denial as people read it.
func line(d *guarding.Denial) string {
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

// Is reports whether an event is one of this package.
func Is(kind enforce.EventKind) bool { return kind == Changed || kind == Denied }

// Record is the record of an event of this package; false for others.
func Record(e *enforce.Event) (audit.Record, bool) {
	r := audit.Record{Kind: audit.KindGuard, Host: e.Host, Text: e.Text}
	if e.Kind == Denied {
		f := e.Finding
		r.Kind, r.User, r.UID, r.PID = audit.KindDenied, f.User, f.UID, f.PID
		if len(f.Devices) > 0 {
			r.Device = &f.Devices[0]
		}
	}
	return r, Is(e.Kind)
}
