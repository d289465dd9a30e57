package controller

import (
	"encoding/json"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/snapshot"
)

// Hooks are told of events; *hook.Queue is one. Tell must not wait for anybody.
type Hooks interface {
	Tell(event string, body []byte)
}

// The events.
const (
	EventWarn = "warn" // findings were seen first, and are not acted on yet
	EventAct  = "act"  // reports were carried out, or their outcome is unknown
	EventHold = "hold" // safety limits held actions against users or on hosts back
)

// Notice is what hooks get, as JSON; docs/json.md describes it.
type Notice struct {
	Schema   string           `json:"schema"` // genv.hook/1
	Event    string           `json:"event"`
	Time     time.Time        `json:"time"`
	Run      string           `json:"run"`
	Cycle    int              `json:"cycle"`
	Findings []NoticedFinding `json:"findings"`
	Outcomes []audit.Record   `json:"outcomes"`
	// HeldUsers and HeldHosts are those against whom safety limits held
	// actions back.
	HeldUsers []enforce.Held `json:"held_users,omitempty"`
	HeldHosts []enforce.Held `json:"held_hosts,omitempty"`
}

// NoticedFinding is a finding with its words for people.
type NoticedFinding struct {
	enforce.Finding
	Line   string `json:"line"`
	Advice string `json:"advice"` // how to get right
}

// notify tells the hooks of the cycle.
func (c *Controller) notify(cycle *Cycle) {
	if c.Hooks == nil || cycle.DryRun {
		return
	}
	warned := cycle.findings(func(f *enforce.Finding) bool { return f.Pending && f.Cycles == 1 })
	if len(warned) > 0 {
		c.tellHooks(cycle, Notice{Event: EventWarn, Findings: warned})
	}
	if len(cycle.Actions) > 0 {
		acted := cycle.findings(func(f *enforce.Finding) bool { return cycle.Decision(f) == audit.DecisionAct })
		c.tellHooks(cycle, Notice{Event: EventAct, Findings: acted, Outcomes: cycle.outcomes})
	}
	if cycle.Plan.Held() { // in every cycle: it is the administrator who has to decide
		c.tellHooks(cycle, Notice{Event: EventHold, HeldUsers: cycle.Plan.HeldUsers, HeldHosts: cycle.Plan.HeldHosts})
	}
}

// findings are those that a notice names: of a host no more than are recorded.
func (cycle *Cycle) findings(which func(*enforce.Finding) bool) []NoticedFinding {
	var list []NoticedFinding
	perHost := make(map[snapshot.Hostname]int)
	for i := range cycle.Plan.Findings {
		if f := &cycle.Plan.Findings[i]; perHost[f.Host] < maxFindingsRecorded && which(f) {
			perHost[f.Host]++
			list = append(list, NoticedFinding{*f, f.Line(), f.Advice()})
		}
	}
	return list
}

func (c *Controller) tellHooks(cycle *Cycle, n Notice) {
	n.Schema, n.Time, n.Run, n.Cycle = "genv.hook/1", c.Now().UTC(), c.run, cycle.Number
	n.Findings, n.Outcomes = append([]NoticedFinding{}, n.Findings...), append([]audit.Record{}, n.Outcomes...)
	body, err := json.Marshal(n)
	if err != nil {
		return // these types have nothing that JSON could not hold
	}
	c.Hooks.Tell(n.Event, body)
}
