package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// trackedGuard is the guard of a host as the controller knows it: what it was ordered to do, and what it does.
type trackedGuard struct {
	sent     guard.Mode // in the last order
	underWay bool       // a request was sent and not answered yet
	said     string     // the text of the last event about it
	heard    string     // the state in the last answer, as text
	deadline time.Time  // when the last order that arrived ends
}

// plan is what to say before a host is asked; empty for nothing new.
func (g *trackedGuard) plan(m guard.Mode, about *agent.About, o *Options) string {
	switch {
	case m == guard.Off && g.sent == guard.Off:
		return ""
	case m == guard.Off:
		return "turning the kernel guard off"
	case !about.Can.Guard && about.Via == agent.ViaStream:
		return fmt.Sprintf("the policy asks for guard: %s, but the genv on this host is an older one without a kernel guard: upgrade it. The host is polled as before", m)
	case !about.Can.Guard:
		return fmt.Sprintf("the policy asks for guard: %s, but there is no kernel guard without our genv on the host. It is polled as before", m)
	case o.Standby: // what is done is what the leader does
		return ""
	case o.DryRun:
		return fmt.Sprintf("would set the kernel guard to %s (dry run)", m)
	case g.sent != m:
		return fmt.Sprintf("setting the kernel guard to %s", m)
	}
	return ""
}

// say is an event about a text, unless it is empty or was the last one.
func (g *trackedGuard) say(host snapshot.Hostname, text string) []enforce.Event {
	if text == "" || text == g.said {
		return nil
	}
	g.said = text
	return []enforce.Event{{Kind: enforce.EventGuard, Host: host, Text: text}}
}

// learn takes note of an answer, and returns what is new about the guard.
func (g *trackedGuard) learn(a *guardAsk, err error) []enforce.Event {
	g.underWay = false
	switch {
	case err == nil:
		g.deadline = a.begun.Add(a.request.Order.Lease)
		return g.say(a.name, g.state(a))
	case a.request.Order.Mode == guard.Off:
		g.sent = guard.Watch // so that it is asked again
	}
	if g.deadline.IsZero() {
		return g.say(a.name, fmt.Sprintf("the kernel guard can't be set: %v", err))
	}
	until := g.deadline.Local().Format(time.TimeOnly)
	return g.say(a.name, fmt.Sprintf("the kernel guard can't be renewed: %v. Everything opens at %s at the latest", err, until))
}

// guardModes are the modes as people read them.
var guardModes = [...]string{guard.Off: "off", guard.Watch: "watching", guard.Enforce: "enforcing"}

// state is what to say about the guard's state. An order takes a moment to be carried out,
// so what differs from it has to be so for two answers.
func (g *trackedGuard) state(a *guardAsk) string {
	want, is := a.request.Order.Mode, a.answer.State
	said := "the kernel guard is " + guardModes[is.Mode]
	if is.Mode == want {
		g.heard = said
		return said
	}
	why := slices.DeleteFunc(append([]string{is.Reason}, is.Problems...), func(s string) bool { return s == "" })
	said += fmt.Sprintf(", although the policy says %s: %s", want, strings.Join(why, "; "))
	before := g.heard
	g.heard = said
	if before != said || len(why) == 0 {
		return ""
	}
	return said
}

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
		if len(events) == safety.MaxEventsPerHost {
			more++
			continue
		}
		f := &enforce.Finding{Host: a.name, User: d.User, UID: &d.UID, PID: d.PID, Since: d.First}
		if d.Index != nil {
			f.Devices = []snapshot.DeviceIndex{*d.Index}
		}
		event := enforce.Event{Kind: enforce.EventDenied, Host: a.name, Finding: f, Decision: enforce.DecisionAct, Text: denialText(d)}
		if !d.Denied {
			event.Decision = enforce.DecisionDryRun
		}
		events = append(events, event)
	}
	s.ID = latest
	if more > 0 {
		events = append(events, enforce.Event{Kind: enforce.EventGuard, Host: a.name, Text: fmt.Sprintf("and %d more opens of GPUs that are not attached", more)})
	}
	return events
}

// denialText is a denial as people read it.
func denialText(d *agent.GuardDenial) string {
	device := fmt.Sprintf("the device with minor number %d", d.Minor)
	if d.Index != nil {
		device = "GPU " + d.Index.String()
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
		r.Kind, r.User, r.UID, r.PID, r.Action = audit.KindDenied, f.User, f.UID, f.PID, audit.ActionDenied
		if e.Decision == enforce.DecisionDryRun {
			r.Action = audit.ActionWouldDeny
		}
		if len(f.Devices) > 0 {
			r.Device = &f.Devices[0]
		}
	}
	return r
}
