package controller

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
)

// A host that makes up findings, again in every cycle, does not push everybody's
// history out of the log; what is done because of a finding is recorded always.
func TestTheRecordOfAHostIsBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		pending bool
		records int
		last    string
	}{
		"they wait":         {true, maxFindingsRecorded + 1, "and 744 findings more on this host"},
		"they are acted on": {false, 1000, "Process 5 is not running in a GPU environment"},
	} {
		t.Run(name, func(t *testing.T) {
			var cycle Cycle
			for i := range 1000 {
				cycle.Plan.Findings = append(cycle.Plan.Findings, enforce.Finding{
					ID: fmt.Sprint(i), Rule: enforce.RuleNonEnvProcesses, Host: "evil", PID: 5, Pending: tt.pending,
					Terminate: []enforce.ProcessRef{{Host: "evil", PID: 5}},
				})
			}
			records := (&Controller{}).findingRecords(&cycle)
			require.Len(t, records, tt.records)
			require.Equal(t, audit.KindFinding, records[len(records)-1].Kind)
			require.Equal(t, tt.last, records[len(records)-1].Text)
		})
	}
}
