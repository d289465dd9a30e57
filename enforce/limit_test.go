package enforce_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
)

// limited is a policy that ends processes outside environments, within limits.
type limited struct {
	enforce.Flags
	limits enforce.Limits
}

func (l limited) Fleet() enforce.Fleet { return enforce.Fleet{Limits: l.limits} }

// outside is a host with n processes outside any environment.
func outside(host string, n int) string {
	words := []string{host, "dev 0"}
	for i := range n {
		words = append(words, fmt.Sprintf("proc %d - 0:1", 100+i))
	}
	return strings.Join(words, " | ")
}

// What a user has on the host that waits is not ended for a cap either.
func TestACapWaitsWithTheHostThatIsHeld(t *testing.T) {
	b := "b | env 1 alice | dev 0 1@01" + strings.Repeat(" | proc 5 1 0:1", 99)
	for i := range 99 {
		b = strings.Replace(b, "proc 5 ", fmt.Sprintf("proc %d ", 100+i), 1)
	}
	policy := stated{all: enforce.Settings{NonEnvProcesses: true, MaxDevices: ptr(0)}, fleet: enforce.Fleet{Limits: enforce.Limits{MaxTerminations: 50}}}
	for text, held := range map[string]bool{b: true, b + "\nc | env 2 alice | dev 0 2@01": false} {
		plan := enforce.Evaluate(policy, parseCluster(t, outside("a", 1)+"\n"+text), noon(0))
		require.Equal(t, "b", string(plan.HeldHost))
		last := plan.Findings[len(plan.Findings)-1]
		require.Equal(t, enforce.RuleMaxDevicesPerUser, last.Rule)
		require.Equal(t, held, last.Held && last.Pending, "a part of it is done elsewhere")
	}
}

func TestOneHostDoesNotHoldAll(t *testing.T) {
	for _, tt := range []struct {
		name     string
		limits   enforce.Limits
		hosts    []string
		held     bool
		heldHost string
		ends     int
	}{
		{"within", enforce.Limits{MaxTerminations: 4}, []string{outside("a", 2), outside("b", 2)}, false, "", 4},
		{"no limit", enforce.Limits{}, []string{outside("a", 500)}, false, "", 500},
		{"many hosts are a mistake of the policy's", enforce.Limits{MaxTerminations: 4}, []string{outside("a", 2), outside("b", 2), outside("c", 2)}, true, "", 6},
		{"most of few is nothing out of the ordinary", enforce.Limits{MaxTerminations: 4}, []string{outside("a", 2), outside("b", 50)}, true, "", 52},
		{"one host that has most of many waits alone", enforce.Limits{MaxTerminations: 100}, []string{outside("a", 2), outside("b", 99)}, false, "b", 2},
		{"but not if the others are over as well", enforce.Limits{MaxTerminations: 4}, []string{outside("a", 5), outside("b", 99)}, true, "", 104},
		{"a single host is the fleet", enforce.Limits{MaxTerminations: 4}, []string{outside("a", 99)}, true, "", 99},
		{"per cent", enforce.Limits{MaxPercent: 50}, []string{outside("a", 1)}, true, "", 1},
		{
			"per cent of the others, without the one that waits",
			enforce.Limits{MaxPercent: 50},
			[]string{"a | env 1 alice | dev 0 1@01 | proc 5 1 0:1 | proc 6 - 0:1", outside("b", 99)},
			false, "b", 1,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			policy := limited{enforce.Flags{NonEnvProcesses: true}, tt.limits}
			plan := enforce.Evaluate(policy, parseCluster(t, strings.Join(tt.hosts, "\n")), time.Time{})
			require.Equal(t, tt.held, plan.Held != "", plan.Held)
			require.Equal(t, tt.heldHost, string(plan.HeldHost))
			require.Equal(t, tt.ends, strings.Count(planText(plan), "end "))
			for _, f := range plan.Findings {
				require.Equal(t, tt.heldHost != "" && string(f.Host) == tt.heldHost, f.Pending, "a finding says that it waits")
			}
		})
	}
}
