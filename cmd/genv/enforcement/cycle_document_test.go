package enforcement

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// A document has each report that ended once, with the cycle in which it was sent: those of
// the cycle, of earlier ones, and of those between two full ones.
func TestReportsOfADocument(t *testing.T) {
	report := func(id string, pid snapshot.PID) enforce.Report {
		return enforce.Report{ID: id, Terminate: []enforce.Termination{{Process: snapshot.Process{PID: pid}}}}
	}
	action := func(cycle int, id string, pid snapshot.PID) controller.ReportResult {
		done := agent.Execution{Outcomes: []enforce.Outcome{{PID: pid, Status: enforce.StatusTerminated}}}
		return controller.ReportResult{Cycle: cycle, Host: "a", Report: report(id, pid), Execution: done}
	}
	cycle := &controller.Cycle{
		Number: 12, Earlier: 3,
		Plan:    enforce.Plan{Reports: []enforce.HostReport{{Host: "a", Report: report("run/12/a", 1)}, {Host: "a", Report: report("run/12/b", 2)}}},
		Actions: []controller.ReportResult{action(11, "run/11.1/a", 3), action(12, "run/12/a", 1), action(12, "run/12.1/a", 4)},
	}
	document := documentOf(cycle, nil)

	require.Equal(t, 3, document.Early)
	type row struct {
		pid   snapshot.PID
		cycle int
		ended bool
	}
	var got []row
	for _, r := range document.Reports {
		got = append(got, row{r.Terminate[0].PID, r.Cycle, len(r.Outcomes) == 1})
	}
	require.Equal(t, []row{{3, 11, true}, {4, 12, true}, {1, 0, true}, {2, 0, false}}, got)
}
