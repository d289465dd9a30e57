package render

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"
)

func TestFitWidths(t *testing.T) {
	for _, row := range []struct {
		columns []Fit
		width   int
		want    []int
	}{
		{nil, 80, []int{}},
		{[]Fit{{Width: 10}, {Width: 20}}, 80, []int{10, 20}},
		{[]Fit{{Width: 10}, {Width: 20}}, 8, []int{10, 20}},
		{[]Fit{{Width: 10}, {Width: 20, Least: 5}}, 22, []int{10, 10}},
		{[]Fit{{Width: 30, Least: 5}, {Width: 20, Least: 5}}, 32, []int{15, 15}},
		{[]Fit{{Width: 30, Least: 5}, {Width: 7, Least: 5}}, 32, []int{23, 7}},
		{[]Fit{{Width: 10}, {Width: 20, Order: 2}, {Width: 5, Order: 1}}, 32, []int{10, 20, LeftOut}},
		{[]Fit{{Width: 10}, {Width: 20, Order: 2}, {Width: 5, Order: 1}}, 31, []int{10, LeftOut, LeftOut}},
	} {
		require.Equal(t, row.want, FitWidths(row.columns, row.width))
	}
}

// TestFitWidthsProperty: a line fits if it can, and nothing is cut that has room.
func TestFitWidthsProperty(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		columns := make([]Fit, 1+random.IntN(8))
		for i := range columns {
			columns[i] = Fit{Width: 1 + random.IntN(30), Least: random.IntN(12), Order: random.IntN(4)}
		}
		width := random.IntN(140)
		widths := FitWidths(columns, width)
		fixed, cut := -Gap, false
		for i, c := range columns {
			if c.Order == 0 {
				fixed += c.minimum() + Gap
			}
			if widths[i] != LeftOut {
				require.GreaterOrEqual(t, widths[i], c.minimum())
				require.LessOrEqual(t, widths[i], c.Width)
				cut = cut || widths[i] < c.Width
			}
		}
		if fixed <= width {
			require.LessOrEqual(t, lineLength(widths), width)
		}
		if cut && fixed <= width {
			require.Equal(t, width, lineLength(widths), "%v %v", columns, widths)
		}
	}
}

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
	require.NoError(t, table.writeText(&b, append([][]string{header}, table.rows...), terminal))
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
