package report

import (
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/report"
)

func document() *report.Document {
	row := func(name string, hours, idle int64) usage.Row {
		return usage.Row{Name: name, Sum: usage.Sum{Amounts: usage.Amounts{Attached: hours * 3600, Idle: idle * 3600, Used: (hours - idle) * 3600, Findings: 2}, Peak: 3}}
	}
	return report.New(&usage.Report{Rows: []usage.Row{row("alice", 100, 50), row("bob\x1b[31m", 40, 0), row("uid 1004", 1, 1), row("", 10, 10)}}, report.ByUser, time.UTC)
}

// A table is as wide as the terminal, if that is possible; bars are what is left, and in a pipe
// there are none.
func TestTable(t *testing.T) {
	wide := table(document(), render.Output{}, 160, false)
	require.Equal(t, []string{
		"USER        GPU-HOURS  SHARE  USED  COMPUTING  IDLE  UNKNOWN  PEAK  FINDINGS  ENDED  DETACHED",
		"alice           100.0   66 %  50.0        0.0  50.0      0.0     3         2      0         0  ████████████████████░░░░░░░░░░░░░░░░░░░░",
		`"bob?[31m"       40.0   26 %  40.0        0.0   0.0      0.0     3         2      0         0  ████████████████`,
		"(unknown)        10.0    7 %   0.0        0.0  10.0      0.0     3         2      0         0  ░░░░",
		"uid 1004          1.0    1 %   0.0        0.0   1.0      0.0     3         2      0         0",
	}, strings.Split(strings.TrimSuffix(wide, "\n"), "\n"))
	for width := 20; width <= 200; width++ {
		for line := range strings.Lines(table(document(), render.Output{}, width, true)) {
			require.LessOrEqual(t, ansi.StringWidth(strings.TrimSuffix(line, "\n")), max(width, 24), "%d", width)
		}
	}
	pipe := table(document(), render.Output{NoHeader: true}, 0, false)
	require.NotContains(t, pipe, "█")
	require.NotContains(t, pipe, "USER")
	require.Contains(t, table(document(), render.Output{}, 100, true), "\x1b[32m██")
	require.NotContains(t, table(document(), render.Output{}, 100, false), "\x1b")
}

func TestCSV(t *testing.T) {
	var b strings.Builder
	require.NoError(t, writeCSV(&b, document(), render.Output{}))
	lines := strings.Split(b.String(), "\n")
	require.Equal(t, "key,attached_seconds,used_seconds,computing_seconds,idle_seconds,unknown_seconds,unmeasured_seconds,memory_mib_seconds,share,peak_devices,findings,terminated,detached", lines[0])
	require.Equal(t, "alice,360000,180000,0,180000,0,0,0,0.6623,3,2,0,0", lines[1])
}
