package rules_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestUnreadableProcesses: they are findings, and end only if their user has caused it and the policy says so.
func TestUnreadableProcesses(t *testing.T) {
	const line = "Process 5 can't be judged: its memory does not answer"
	end := enforce.Settings{NonEnvProcesses: true, EndUnreadable: true}
	warn := end
	warn.Warn = enforce.Warn{Cycles: 2}
	for name, tt := range map[string]struct {
		settings enforce.Settings
		host     string
		decision enforce.Decision // of the finding; empty for none
	}{
		"reported":                   {enforce.Settings{NonEnvProcesses: true}, "a | dev 0 | proc 5 - u1002 0:1 stalled:user", enforce.DecisionNone},
		"without any rule":           {enforce.Settings{}, "a | dev 0 | proc 5 - u1002 0:1 stalled:user", enforce.DecisionNone},
		"ended":                      {end, "a | dev 0 | proc 5 - u1002 0:1 stalled:user", enforce.DecisionAct},
		"warned first":               {warn, "a | dev 0 | proc 5 - u1002 0:1 stalled:user", enforce.DecisionWait},
		"held by root's file system": {end, "a | dev 0 | proc 5 - u1002 0:1 stalled:nfs", enforce.DecisionNone},
		"of root":                    {end, "a | dev 0 | proc 5 - u0 0:1 stalled:user", enforce.DecisionNone},
		"of an unknown user":         {end, "a | dev 0 | proc 5 - 0:1 stalled:user", enforce.DecisionNone},
		"not read yet":               {end, "a | dev 0 | proc 5 ? u1002 0:1", ""},
		"overwritten":                {end, "a | dev 0 | proc 5 ! u1002 0:1", ""},
		"readable":                   {enforce.Settings{EndUnreadable: true}, "a | dev 0 | proc 5 - u1002 0:1", ""},
		"of an exempt user":          {end, "a | dev 0 | proc 5 - u1002 0:1 stalled:user by:exempted", ""},
	} {
		t.Run(name, func(t *testing.T) {
			policy := stated{all: tt.settings, exempt: func(s enforce.Subject) bool { return s.Process != nil && s.Process.Username == "exempted" }}
			policy.fleet.TellUsers = true
			memory := controllerMemory{}
			plan := memory.Judge(policy, parseCluster(t, tt.host), time.Time{}.Add(time.Hour))
			if tt.decision == "" {
				require.Empty(t, plan.Findings)
				require.Empty(t, plan.Orders)
				return
			}
			require.Len(t, plan.Findings, 1)
			f := plan.Findings[0]
			require.Equal(t, enforce.RuleUnreadable, f.Rule)
			require.Equal(t, tt.decision, f.Decision())
			require.Equal(t, line, f.String())
			require.Equal(t, snapshot.PID(5), f.PID)
			require.Equal(t, tt.decision == enforce.DecisionAct, len(plan.Orders) == 1)
			notified := false
			for _, e := range memory.events {
				notified = notified || e.Kind == enforce.EventNotify
			}
			require.Equal(t, tt.decision != enforce.DecisionNone, notified, "an order alone is for the administrator")
		})
	}
}
