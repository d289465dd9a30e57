package controller

import (
	"encoding/json"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/safety"
)

// Hooks take events; *notify.Queue is one. Send must not wait.
type Hooks interface {
	Send(event policy.Event, body []byte)
}

// Notice is what hooks get, as JSON; docs/json.md describes it.
type Notice struct {
	Schema   string           `json:"schema"` // genv.hook/1
	Event    policy.Event     `json:"event"`
	Time     time.Time        `json:"time"`
	Run      string           `json:"run"`
	Cycle    int              `json:"cycle"`
	Findings []NoticedFinding `json:"findings"`
	Outcomes []audit.Record   `json:"outcomes"`
	// HeldUsers and HeldHosts are those against whom safety limits held
	// actions back.
	HeldUsers []safety.Held `json:"held_users,omitempty"`
	HeldHosts []safety.Held `json:"held_hosts,omitempty"`
}

// NoticedFinding is a finding with its text for people.
type NoticedFinding struct {
	enforce.Finding
	Line   string `json:"line"`
	Advice string `json:"advice"` // what its user should do
}

// HookSink sends to hooks: new findings, of what was done, and of what limits held
// back.
type HookSink struct {
	Hooks Hooks
	Now   func() time.Time
}

// Consume implements Sink.
func (s HookSink) Consume(cycle *Cycle, events []enforce.Event) {
	if cycle.DryRun {
		return
	}
	warned, acted := Notice{Event: policy.OnWarn}, Notice{Event: policy.OnAct}
	held := Notice{Event: policy.OnHold} // in every cycle: the administrator has to decide
	for i := range events {
		switch e := &events[i]; {
		case e.Kind == enforce.EventNew && e.Finding.Pending && !e.Resumed:
			warned.Findings = append(warned.Findings, noticed(e.Finding))
		case e.Kind == enforce.EventOutcome:
			for j := range e.Findings {
				acted.Findings = append(acted.Findings, noticed(&e.Findings[j]))
			}
			acted.Outcomes = cycle.records
		case e.Kind == enforce.EventHeld && e.Held.User != "":
			held.HeldUsers = append(held.HeldUsers, *e.Held)
		case e.Kind == enforce.EventHeld:
			held.HeldHosts = append(held.HeldHosts, *e.Held)
		}
	}
	if len(warned.Findings) > 0 {
		s.send(cycle, warned)
	}
	if len(acted.Outcomes) > 0 {
		s.send(cycle, acted)
	}
	if len(held.HeldUsers)+len(held.HeldHosts) > 0 {
		s.send(cycle, held)
	}
}

func noticed(f *enforce.Finding) NoticedFinding {
	return NoticedFinding{*f, f.Line(), notify.Advice(f.Rule)}
}

func (s HookSink) send(cycle *Cycle, n Notice) {
	n.Schema, n.Time, n.Run, n.Cycle = "genv.hook/1", s.Now().UTC(), cycle.Run, cycle.Number
	n.Findings, n.Outcomes = append([]NoticedFinding{}, n.Findings...), append([]audit.Record{}, n.Outcomes...)
	body, err := json.Marshal(n)
	if err != nil {
		return // these types have nothing that JSON can't express
	}
	s.Hooks.Send(n.Event, body)
}
