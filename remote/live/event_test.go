package live_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/decision"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestEventsOfAFinding say what they are about, also when it is over, and each thing once: that
// a finding is acted on is EventDue, which comes with EventNew or EventChanged.
func TestEventsOfAFinding(t *testing.T) {
	finding := &enforce.Finding{ID: "f", Rule: enforce.RuleNonEnvProcesses, Host: "a", PID: 9, User: "alice"}
	event := func(kind enforce.EventKind, decision enforce.Decision) enforce.Event {
		return enforce.Event{Kind: kind, Host: "a", ID: "f", Finding: finding, Decision: decision}
	}
	s := newStage(answered("a", "alice"))
	s.run(func(c *controller.Cycle) { c.Plan.Findings = []enforce.Finding{*finding} }, event(enforce.EventNew, enforce.DecisionWait))
	s.run(nil, event(enforce.EventChanged, enforce.DecisionAct), event(enforce.EventDue, enforce.DecisionAct))
	report := &enforce.Report{ID: "r", Terminate: []enforce.Termination{{ // as 1.4.3 reports it
		Process: snapshot.Process{PID: 9}, Because: []string{"f"}, Why: []string{finding.Line()}, Judged: []string{"process 9"},
	}}}
	s.run(nil, enforce.Event{
		Kind: enforce.EventOutcome, Host: "a", Report: report, Findings: []enforce.Finding{*finding},
		Outcomes: []enforce.Outcome{{PID: 9, Status: enforce.StatusTerminated}},
	})
	s.run(nil, enforce.Event{ // a host that says something else than was asked
		Kind: enforce.EventOutcome, Host: "a", Report: report, Findings: []enforce.Finding{*finding},
		Outcomes: []enforce.Outcome{{PID: 10, Status: enforce.StatusTerminated}},
	})
	over := enforce.Event{Kind: enforce.EventOver, Host: "a", ID: "f"}
	s.run(func(c *controller.Cycle) { c.Plan.Findings = nil }, over)
	s.run(nil, over) // as after a restart: the finding was of another run

	var kinds []enforce.EventKind
	list := s.Events(0)
	for i := range list {
		kinds = append(kinds, list[i].Kind)
	}
	require.Equal(t, []enforce.EventKind{enforce.EventNew, enforce.EventDue, enforce.EventOutcome, enforce.EventOutcome, enforce.EventOver, enforce.EventOver}, kinds)
	require.Equal(t, finding.Line(), list[2].Why)
	require.Equal(t, finding.User, list[2].User, "it is on the page of who lost the process")
	require.Equal(t, &decision.Record{
		ID: decision.ID("r", 9, "", nil), Time: list[2].Time, Host: "a", What: report.Terminate[0].String(), Status: enforce.StatusTerminated,
		Why: []string{finding.Line()}, Judged: []string{"process 9"},
	}, list[2].Record)
	require.Nil(t, list[3].Record, "it isn't about that process")
	require.Equal(t, "no longer there: "+finding.Line(), list[4].Text)
	require.Equal(t, snapshot.Username("alice"), list[4].User)
	require.Equal(t, snapshot.PID(9), list[4].PID)
	require.Equal(t, enforce.RuleNonEnvProcesses, list[4].Rule)
	require.Equal(t, "no longer there", list[5].Text)
	require.Empty(t, list[5].User)
}
