package enforce_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
)

// TestAPIDIsNotAProof: a process that the driver lists and that has no device of the driver open is shown, and
// nothing is done about it.
func TestAPIDIsNotAProof(t *testing.T) {
	none := 0
	for name, tt := range map[string]struct {
		policy  enforce.Settings
		cluster string
		proved  string // the plan for the same process with a device open
	}{
		"outside":              {enforce.Settings{NonEnvProcesses: true}, `a | dev 0 | proc 5 - u1002 0:1`, "a end 5"},
		"another's GPU":        {enforce.Settings{EnvDevices: true}, `a | env 1 alice u1001 | dev 0 | proc 5 1 u1001 0:1`, "a end 5"},
		"over its memory":      {enforce.Settings{EnvMemory: true}, `a | env 1 alice 1000mi u1001 | dev 0 1@01 | proc 5 1 u1001 0:2000`, "a end 5"},
		"beyond a cap":         {enforce.Settings{MaxDevices: &none}, `a | env 1 alice u1001 | dev 0 | proc 5 1 u1001 by:alice 0:1`, "a end 5"},
		"of nobody we can see": {enforce.Settings{NonEnvProcesses: true, UnknownOutside: true}, `a | dev 0 | proc 5 ! u1002 0:1`, "a end 5"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := parseCluster(t, tt.cluster)
			require.Equal(t, tt.proved, planText(evaluate(stated{all: tt.policy}, cluster, noon(0))))
			cluster.Hosts[0].Snapshot.Processes[0].NodeMissing = true
			plan := evaluate(stated{all: tt.policy}, cluster, noon(0))
			require.Empty(t, planText(plan))
			require.Len(t, plan.Notes, 1)
			require.True(t, strings.Contains(plan.Notes[0].Text, "(unproved)"), plan.Notes[0].Text)
		})
	}
}
