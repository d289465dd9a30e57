package history_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/history"
	"github.com/seed-3119e985/genv/enforce/audit"
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
