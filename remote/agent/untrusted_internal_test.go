package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestWhatAHostSaysIsBounded(t *testing.T) {
	kept := boundLines([]string{strings.Repeat("x", 1<<20), "b", "c"}, 2)
	require.Len(t, kept, 2)
	require.Len(t, kept[0], 4096)
	require.Equal(t, "b", kept[1])
	require.Empty(t, boundLines(nil, 2))
	outcomes := []enforce.Outcome{{Reason: strings.Repeat("x", 1<<20)}, {Reason: "b"}}
	shortenReasons(outcomes)
	require.Len(t, outcomes[0].Reason, 1024)
	require.Equal(t, "b", outcomes[1].Reason)
}

func TestCheck(t *testing.T) {
	report := enforce.Report{
		Detach:    []enforce.Detachment{{Device: 1, Environment: snapshot.Environment{EID: "7"}}},
		Terminate: []enforce.Termination{{Process: snapshot.Process{PID: 9, EID: "7"}}},
	}
	detached, ended := enforce.Outcome{Device: 1, EID: "7", Status: enforce.StatusDetached}, enforce.Outcome{PID: 9, EID: "7", Status: enforce.StatusKilled}
	with := func(change func(*enforce.Outcome)) []enforce.Outcome {
		o := ended
		change(&o)
		return []enforce.Outcome{detached, o}
	}
	require.NoError(t, checkOutcomes(report, []enforce.Outcome{detached, ended}))
	for name, outcomes := range map[string][]enforce.Outcome{
		"none":                nil,
		"too few":             {detached},
		"too many":            {detached, ended, ended},
		"in another order":    {ended, detached},
		"another process":     with(func(o *enforce.Outcome) { o.PID++ }),
		"another environment": with(func(o *enforce.Outcome) { o.EID = "8" }),
		"another device":      with(func(o *enforce.Outcome) { o.Device = 1 }),
		"an unknown status":   with(func(o *enforce.Outcome) { o.Status = "x" }),
	} {
		require.Equal(t, remote.InvalidOutput, remote.ClassOf(checkOutcomes(report, outcomes)), name)
	}
}
