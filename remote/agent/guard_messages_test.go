package agent_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/remote/agent"
)

// What a host says about its guard is one printable line each, of bounded length.
func TestTextsOfAHost(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	state := agent.GuardAnswer{State: agent.GuardState{
		Mode: 9, Reason: "off\x1b]0;title\a\nUser alice was warned", Problems: []string{"a\rb", "\u202ec", long, "\xff"},
	}}.Bounded().State
	require.Equal(t, guard.Off, state.Mode)
	for _, said := range append(state.Problems, state.Reason) {
		require.LessOrEqual(t, len(said), 1024)
		require.NotContains(t, said, "\x1b")
		require.NotContains(t, said, "\n")
		require.NotContains(t, said, "\u202e")
	}
	require.Equal(t, "a b", state.Problems[0])
}
