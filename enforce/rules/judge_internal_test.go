package rules

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
)

// Each rule is applied to hosts, or is a cap, in the order in which they are listed.
func TestEachRuleIsApplied(t *testing.T) {
	var applied []enforce.Rule
	for _, r := range hostRules {
		applied = append(applied, r.rule)
	}
	require.Equal(t, enforce.Rules(), append(applied, enforce.RuleMaxEnvsPerUser, enforce.RuleMaxDevicesPerUser,
		enforce.RuleMaxMemoryPerUser, enforce.RuleCaps, enforce.RuleReservations))
}
