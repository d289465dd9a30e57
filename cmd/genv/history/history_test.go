package history_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/history"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestNothingToShow: people read that there is nothing, and programs only the empty output.
func TestNothingToShow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	show := func(args ...string) (out, errs string) {
		var o, e bytes.Buffer
		p := &command.Program{Out: &o, Err: &e, Now: time.Now, Getenv: func(string) string { return "" }}
		app := &cli.App{Flags: history.Flags(), Action: func(c *cli.Context) error { return history.Show(p, c, path, audit.Filter{}) }}
		require.NoError(t, app.Run(append([]string{"history"}, args...)))
		return o.String(), e.String()
	}
	out, errs := show("--user", "bob")
	require.Contains(t, out, "WHY")
	require.Equal(t, "No such action is recorded in "+path+"\n", errs)
	for _, args := range [][]string{{"--no-header"}, {"--format", "csv"}, {"--format", "json"}} {
		_, errs = show(args...)
		require.Empty(t, errs, args)
	}
}

// TestTheContainerIsNamed: where the findings don't.
func TestTheContainerIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	const web = "container web (lab:1), started by bob"
	for i, why := range []string{"User bob is using 2 devices", "Process 2 is not running in a GPU environment (user bob, " + web + ")", "User bob has 2 environments"} {
		r := audit.Record{Kind: audit.KindReport, Report: "r", PID: snapshot.PID(i + 1), Why: []string{why}, Container: web}
		if i == 2 {
			r.Container = ""
		}
		require.NoError(t, (&audit.Log{Path: path}).Append(r))
	}
	show := func(format string) string {
		var out bytes.Buffer
		p := &command.Program{Out: &out, Now: time.Now, Getenv: func(string) string { return "" }}
		app := &cli.App{Flags: history.Flags(), Action: func(c *cli.Context) error { return history.Show(p, c, path, audit.Filter{}) }}
		require.NoError(t, app.Run([]string{"history", "--format", format}))
		return out.String()
	}
	table := show("tui")
	require.Contains(t, table, "User bob is using 2 devices ("+web+")")
	require.Contains(t, table, "has 2 environments (genv ended")
	require.Equal(t, 2, strings.Count(table, web), table)
	require.Equal(t, 2, strings.Count(show("json"), `"container":"`+web+`"`)+strings.Count(show("json"), `"container": "`+web+`"`))
}
