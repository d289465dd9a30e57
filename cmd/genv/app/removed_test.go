package app_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
)

// Flags and commands of earlier versions are refused, and the error says what to use instead.
func TestRemoved(t *testing.T) {
	for line, says := range map[string]string{
		"genv extend 2h --index 0":             `unknown command "extend": ask an administrator, who can use genv remote exempt --for`,
		"genv policy try --policy x":           `unknown command "try": run genv remote enforce --dry-run --policy FILE`,
		"genv remote enforce --record on":      "unknown flag --record: run genv remote enforce --dry-run --policy FILE",
		"genv remote enforce --record-keep 7d": "unknown flag --record-keep: run genv remote enforce --dry-run",
		"genv remote enforce --record-max 1g":  "unknown flag --record-max: run genv remote enforce --dry-run",
		"genv remote report --fair-share":      "unknown flag --fair-share: use --by user",
		"genv doctor --bundle x":               "unknown flag --bundle: attach the output of --format json instead",
		"genv remote doctor --bundle x":        "unknown flag --bundle: attach the output of --format json instead",
		"genv remote controllers":              `unknown command "controllers": use genv remote doctor`,
		"genv report --since 30d":              `unknown command "report": use genv remote report on the controller`,
		"genv report":                          `unknown command "report": use genv remote report on the controller`,
	} {
		r := genvtest.Run(t, strings.Fields(line)[1:]...)
		require.Equal(t, command.ExitFailed, r.Code, line)
		require.Contains(t, r.Err, says, line)
		require.Empty(t, r.Out, line)
	}
}
