package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
)

// A listed process without a device of the driver open is left alone. Its environment is judged as without it.
func TestAPIDIsNotAProof(t *testing.T) {
	none := 0
	minute := enforce.Settings{MaxDuration: time.Minute}
	for name, tt := range map[string]struct {
		policy   enforce.Settings
		cluster  string
		proved   string // the plan for the same process with a device open
		unproved string
	}{
		"outside":                    {enforce.Settings{NonEnvProcesses: true}, `a | dev 0 | proc 5 - u1002 0:1`, "a end 5", ""},
		"another's GPU":              {enforce.Settings{EnvDevices: true}, `a | env 1 alice u1001 | dev 0 | proc 5 1 u1001 0:1`, "a end 5", ""},
		"over its memory":            {enforce.Settings{EnvMemory: true}, `a | env 1 alice 1000mi u1001 | dev 0 1@01 | proc 5 1 u1001 0:2000`, "a end 5", ""},
		"beyond a cap":               {enforce.Settings{MaxDevices: &none}, `a | env 1 alice u1001 | dev 0 | proc 5 1 u1001 by:alice 0:1`, "a end 5", ""},
		"of an owner who is unknown": {enforce.Settings{NonEnvProcesses: true, UnknownOutside: true}, `a | dev 0 | proc 5 ! u1002 0:1`, "a end 5", ""},

		"attached beyond a cap": {enforce.Settings{MaxDevices: &none}, `a | env 1 alice u1001 | dev 0 p? 1@01 | proc 5 1 u1001 0:1`, "a detach 0 1; a end 5", "a detach 0 1"},
		"an environment beyond": {enforce.Settings{MaxEnvs: &none}, `a | env 1 alice u1001 | dev 0 p? 1@01 | proc 5 1 u1001 0:1`, "a detach 0 1; a end 5", "a detach 0 1"},
		"attached for too long": {minute, `a | env 1 alice u1001 | dev 0 p? 1@01 | proc 5 1 u1001 0:1`, "a detach 0 1", "a detach 0 1"},
		"within what is allowed": {
			enforce.Settings{MaxDevices: new(1), MaxDuration: 24 * time.Hour},
			`a | env 1 alice u1001 | dev 0 p? 1@01 | proc 5 1 u1001 0:1`, "", "",
		},
		"of somebody exempt": {
			enforce.Settings{MaxDevices: &none, LeaveContainers: true},
			`a | env 1 alice u1001 | dev 0 p? 1@01 | proc 5 1 u0 started:1001 0:1`, "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := parseCluster(t, tt.cluster)
			require.Equal(t, tt.proved, planText(evaluate(stated{all: tt.policy}, cluster, noon(0))))
			cluster.Hosts[0].Snapshot.Processes[0].NodeMissing = true
			plan := evaluate(stated{all: tt.policy}, cluster, noon(0))
			require.Equal(t, tt.unproved, planText(plan))
			require.Len(t, plan.Notes, 1)
			require.True(t, strings.Contains(plan.Notes[0].Text, "(unproved)"), plan.Notes[0].Text)
		})
	}
}

// What draws on a screen is left alone. Its attachments are in use, and judged, unless it isn't known that it draws.
func TestADesktopKeepsNoAttachment(t *testing.T) {
	none := 0
	attached := `a | env 1 alice 10m u1001 | dev 0 screen 1@01 | proc 5 1 u1001 0:25:`
	for name, tt := range map[string]struct {
		policy                     enforce.Settings
		cluster                    string
		draws, computes, mayBeBoth string
	}{
		"attached beyond a cap":  {enforce.Settings{MaxDevices: &none}, attached, "a detach 0 1", "a detach 0 1; a end 5", ""},
		"an environment beyond":  {enforce.Settings{MaxEnvs: &none}, attached, "a detach 0 1", "a detach 0 1; a end 5", ""},
		"attached for too long":  {enforce.Settings{MaxDuration: time.Minute}, attached, "a detach 0 1", "a detach 0 1", ""},
		"idle":                   {enforce.Settings{Idle: &enforce.Idle{}}, attached, "", "", ""},
		"within what is allowed": {enforce.Settings{MaxDevices: new(1), MaxDuration: 24 * time.Hour, Idle: &enforce.Idle{}}, attached, "", "", ""},
		"over its memory":        {enforce.Settings{EnvMemory: true}, attached, "", "a end 5", ""},
		"beside a job within it": {enforce.Settings{EnvMemory: true}, `a | env 1 alice 10m u1001 | dev 0 screen 1@01 | proc 6 1 u1001 0:9:C | proc 5 1 u1001 0:25:`, "", "a end 5", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, want := range map[string]string{"C+G": tt.draws, "G": tt.draws, "C": tt.computes, "?": tt.mayBeBoth} {
				plan := evaluate(stated{all: tt.policy}, parseCluster(t, tt.cluster+kind), noon(0))
				require.Equal(t, want, planText(plan), kind)
				for _, o := range plan.Orders {
					for _, d := range o.Order.Detach {
						require.False(t, d.Unused, "else its host would keep it")
					}
				}
			}
		})
	}
}

// No rule is about devices that failed or have unknown memory. What a process uses besides is judged.
func TestDevicesThatNoRuleIsAbout(t *testing.T) {
	all := stated{all: enforce.Settings{NonEnvProcesses: true, EnvDevices: true, EnvMemory: true}}
	capped := stated{all: enforce.Settings{MaxDevices: new(1)}}
	old := stated{all: enforce.Settings{MaxDuration: time.Minute}}
	later := time.Date(2026, 11, 20, 12, 0, 0, 0, time.Local)
	for _, state := range []string{"failed", "m?"} {
		for name, tt := range map[string]struct {
			policy  stated
			cluster string
			want    string
		}{
			"a process outside, on it alone":       {all, `a | dev 0 | dev 1 STATE | proc 5 - 1:1`, ""},
			"a process outside, also on another":   {all, `a | dev 0 | dev 1 STATE | proc 5 - 0:1 1:1`, "a end 5"},
			"a process inside that isn't attached": {all, `a | env 1 alice | dev 0 1@01 | dev 1 STATE | proc 5 1 0:1 1:1`, ""},
			"nor to the other one":                 {all, `a | env 1 alice | dev 0 | dev 1 STATE | proc 5 1 0:1 1:1`, "a end 5"},
			"over the capacity":                    {all, `a | env 1 alice 4g | dev 0 STATE 1@01 | proc 5 1 0:9000`, ""},
			"it doesn't count for a cap":           {capped, `a | env 1 alice | dev 0 STATE 1@01 | dev 1 1@02`, ""},
			"the others do":                        {capped, `a | env 1 alice | dev 0 STATE 1@01 | dev 1 1@02 | dev 2 1@03`, "a detach 2 1"},
			"it stays attached":                    {old, `a | env 1 alice | dev 0 STATE 1@01 | dev 1 1@02`, "a detach 1 1"},
		} {
			plan := evaluate(tt.policy, parseCluster(t, strings.ReplaceAll(tt.cluster, "STATE", state)), later)
			require.Equal(t, tt.want, planText(plan), "%s: %s", state, name)
		}
	}
}

// TestUnifiedMemory: a device that shares the memory of its machine is judged like any other, but not for its memory.
func TestUnifiedMemory(t *testing.T) {
	all := stated{all: enforce.Settings{NonEnvProcesses: true, EnvDevices: true, EnvMemory: true}}
	for _, tt := range []struct {
		policy              stated
		cluster, want, note string
	}{
		{all, `a | env 1 alice | dev 0 unified 1@01 | proc 5 - 0:1 | proc 6 1 0:1`, "a end 5", ""},
		{all, `a | env 1 alice | env 2 bob | dev 0 unified 1@01 | proc 5 2 0:1`, "a end 5", ""},
		{all, `a | env 1 alice 4g | dev 0 unified 1@01 | proc 5 1 0:9000`, "", "GPU 0 shares the memory of its machine, so env-memory does not apply to environment 1 on it"},
		{stated{all: enforce.Settings{MaxMemory: new(memory(1000000000))}}, `a | env 1 alice | dev 0 unified 1@01 | proc 5 1 0:9000`, "", "GPU 0 shares the memory of its machine, so memory caps don't apply to it"},
	} {
		plan := evaluate(tt.policy, parseCluster(t, tt.cluster), time.Time{})
		require.Equal(t, tt.want, planText(plan), tt.cluster)
		if tt.note != "" {
			require.Equal(t, []enforce.Note{{Host: "a", Text: tt.note}}, plan.Notes)
		}
	}
}
