package policycheck_test

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/policycheck"
	"github.com/seed-3119e985/genv/enforce"
)

// TestNonEnvProcesses: the flag of 1.4.3 takes a word only after "=".
func TestNonEnvProcesses(t *testing.T) {
	for _, row := range []struct {
		words       []string
		ends, count bool
		rest        string
		wrong       bool
	}{
		{words: []string{}},
		{words: []string{"--non-env-processes"}, ends: true},
		{words: []string{"--non-env-processes=true"}, ends: true},
		{words: []string{"--non-env-processes=count"}, count: true},
		{words: []string{"--non-env-processes", "count"}, ends: true, rest: "count"},
		{words: []string{"--non-env-processes", "--non-env-processes=count"}, count: true},
		{words: []string{"--non-env-processes=count", "--non-env-processes"}, ends: true},
		{words: []string{"--no-non-env-processes"}},
		{words: []string{"--non-env-processes=kill"}, wrong: true},
		{words: []string{"--non-env-processes=count", "--no-non-env-processes"}, wrong: true},
	} {
		var flags policycheck.RuleFlags
		app := &cli.App{Flags: flags.Flags(), Writer: io.Discard, ErrWriter: io.Discard, Action: func(c *cli.Context) error {
			file, err := flags.Read(c)
			if err != nil {
				return err
			}
			s := file.Settings(enforce.Query{Host: "a"})
			require.Equal(t, []any{row.ends, row.count, row.rest}, []any{s.NonEnvProcesses, s.CountOutside, c.Args().First()}, row.words)
			return nil
		}}
		err := app.Run(append([]string{"genv"}, row.words...))
		require.Equal(t, row.wrong, err != nil, "%s: %v", row.words, err)
	}
}
