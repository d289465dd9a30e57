package rules

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
)

// Each rule is applied to hosts, or is a cap.
func TestEachRuleIsApplied(t *testing.T) {
	caps := []enforce.Rule{
		enforce.RuleMaxEnvsPerUser, enforce.RuleMaxDevicesPerUser, enforce.RuleMaxMemoryPerUser, enforce.RuleCaps,
		enforce.RuleReservations,
	}
	for _, rule := range enforce.Rules() {
		require.NotEqual(t, slices.Contains(caps, rule), ofHosts[rule] != nil, rule)
	}
	require.Len(t, enforce.Rules(), len(caps)+len(ofHosts))
}
