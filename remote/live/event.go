package live

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// Event is something that happened, as JSON shows it: an event of the controller about one
// finding, host or item of a report.
type Event struct {
	Number uint64            `json:"number"` // 1, 2, … of this controller
	Time   time.Time         `json:"time"`
	Cycle  int               `json:"cycle"`
	Kind   enforce.EventKind `json:"kind"`
	Host   snapshot.Hostname `json:"host,omitempty"`
	User   snapshot.Username `json:"user,omitempty"`
	PID    snapshot.PID      `json:"pid,omitempty"`
	Rule   enforce.Rule      `json:"rule,omitempty"`
	ID     string            `json:"id,omitempty"` // of the finding
	// Decision is what is done about a finding, Status what came of an item of a report.
	Decision enforce.Decision `json:"decision,omitempty"`
	Status   enforce.Status   `json:"status,omitempty"`
	Text     string           `json:"text"` // for people; one line, but not escaped
}

// eventsOf are what viewers get to see of an event of the controller.
func eventsOf(e *enforce.Event) []Event {
	base := Event{Kind: e.Kind, Host: e.Host, ID: e.ID, Decision: e.Decision, Text: e.Text}
	switch e.Kind {
	case enforce.EventNew, enforce.EventChanged, enforce.EventDue:
		f := e.Finding
		base.User, base.PID, base.Rule, base.Host, base.Text = f.User, f.PID, f.Rule, f.Host, f.Line()
	case enforce.EventHostLost:
		base.Text = "no answer"
		if e.Err != nil {
			base.Text = e.Err.Error()
		}
	case enforce.EventHostBack:
		base.Text = "answers again"
	case enforce.EventOver:
		base.Text = "no longer there"
	case enforce.EventMore:
		base.Text = fmt.Sprintf("%d more findings", e.Count)
	case enforce.EventHeld:
		base.User, base.Host = e.Held.User, e.Held.Host
	case enforce.EventOutcome:
		return outcomes(base, e)
	case enforce.EventActing, enforce.EventNotify:
		return nil // EventDue and EventOutcome say it
	case enforce.EventNote:
	}
	return []Event{base}
}

// outcomes are what came of the items of a report, an event each.
func outcomes(base Event, e *enforce.Event) []Event {
	if e.Err != nil {
		base.Text = "report failed: " + e.Err.Error()
		return []Event{base}
	}
	findings := make(map[string]*enforce.Finding, len(e.Findings))
	for i := range e.Findings {
		findings[e.Findings[i].ID] = &e.Findings[i]
	}
	var list []Event
	for _, o := range e.Outcomes {
		event := base
		event.PID, event.Status = o.PID, o.Status
		user, because, what := itemOf(e.Report, o)
		event.User, event.Text = user, fmt.Sprintf("%s: %s", what, o.Status)
		if o.Reason != "" {
			event.Text += ": " + o.Reason
		}
		for _, id := range because {
			if f := findings[id]; f != nil {
				event.Rule, event.ID = f.Rule, f.ID
				break
			}
		}
		list = append(list, event)
	}
	return list
}

// itemOf is whose item of a report an outcome is about, because of which findings, and
// its name.
func itemOf(r *enforce.Report, o enforce.Outcome) (user snapshot.Username, because []string, what string) {
	if o.PID != 0 {
		for i := range r.Terminate {
			if t := &r.Terminate[i]; t.Process.PID == o.PID {
				return t.Process.Username, t.Because, fmt.Sprintf("process %d%s", o.PID, t.Process.Describe())
			}
		}
		return "", nil, fmt.Sprintf("process %d", o.PID)
	}
	for i := range r.Detach {
		if d := &r.Detach[i]; d.Device == o.Device && d.Environment.EID == o.EID {
			user, because = d.Environment.Username, d.Because
		}
	}
	return user, because, fmt.Sprintf("device %s of environment %s", o.Device, o.EID.Shown())
}
