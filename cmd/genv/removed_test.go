package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

// Flags and commands of earlier versions are refused, and the error says what to use instead.
func TestRemoved(t *testing.T) {
	for line, says := range map[string]string{
		"genv remote controllers": `unknown command "controllers": use genv remote doctor`,
		"genv report":             `unknown command "report": use genv remote report on the controller`,
	} {
		r := genv(t, strings.Fields(line)[1:]...)
		require.Equal(t, command.ExitFailed, r.code, line)
		require.Contains(t, r.err, says, line)
		require.Empty(t, r.out, line)
	}
}
