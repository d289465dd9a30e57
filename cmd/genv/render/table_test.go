package render

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"
)

func table(t *testing.T, terminal int, header []string, rows ...[]string) string {
	t.Helper()
	table := Output{Format: "tui"}.Table()
	for i, name := range header {
		width := 16
		if i == len(header)-1 {
			width = 0
		}
		table.columns = append(table.columns, Col(name, width))
	}
	for _, row := range rows {
		table.Add(row...)
	}
	var b strings.Builder
	require.NoError(t, table.writeText(&b, terminal))
	return b.String()
}

// TestTableOnATerminal: a table has 1.4.3's widths where there is room, and where it is
// piped; on a narrower terminal it is as wide as that.
func TestTableOnATerminal(t *testing.T) {
	header := []string{"HOST", "USER", "WHY"}
	row := []string{"gpu-server-number-01", "alice", "User alice is using 3 devices on 2 hosts which is 2 more than the maximum allowed"}
	wide := "HOST                  USER            WHY\n" + row[0] + "  alice           " + row[2] + "\n"
	require.Equal(t, wide, table(t, 0, header, row))
	require.Equal(t, wide, table(t, 140, header, row))
	require.Equal(t, `HOST                  USER   WHY
gpu-server-number-01  alice  User alice is using 3 devices
                             on 2 hosts which is 2 more
                             than the maximum allowed
`, table(t, 58, header, row))
	require.Equal(t, `HOST          USER   WHY
gpu-server-…  alice  User alice is using 3
                     devices on 2 hosts which
                     is 2 more than the
                     maximum allowed
`, table(t, 45, header, row))
	for terminal := 1; terminal < 150; terminal++ {
		for line := range strings.Lines(table(t, terminal, header, row)) {
			if terminal > 44 {
				require.LessOrEqual(t, ansi.StringWidth(strings.TrimSuffix(line, "\n")), terminal)
			}
		}
	}
}

// TestWideCharacters: they don't shift the columns of a terminal; in a pipe a character is
// a character, as with 1.4.3.
func TestWideCharacters(t *testing.T) {
	header := []string{"NAME", "USER", "ID"}
	rows := [][]string{{"项目训练", "alice", "7"}, {"e\u0301te\u0301", "bob", "8"}}
	require.Equal(t, "NAME            USER            ID\n项目训练        alice           7\ne\u0301te\u0301             bob             8\n", table(t, 80, header, rows...))
	require.Equal(t, "NAME            USER            ID\n项目训练            alice           7\ne\u0301te\u0301           bob             8\n", table(t, 0, header, rows...))
	narrow := table(t, 39, header, []string{strings.Repeat("项", 20), "alice", "7"})
	for line := range strings.Lines(narrow) {
		require.LessOrEqual(t, ansi.StringWidth(strings.TrimSuffix(line, "\n")), 39, narrow)
	}
	require.Contains(t, narrow, "项…", narrow)
}

func TestShownName(t *testing.T) {
	long := strings.Repeat("é", 33)
	for _, row := range []struct{ format, text, want string }{
		{"tui", "", ""},
		{"tui", "my project", "my project"},
		{"tui", long[2:], long[2:]},
		{"tui", long, long[4:] + "…"},
		{"csv", long, long},
	} {
		require.Equal(t, row.want, Output{Format: row.format}.Name(row.text))
	}
}
