package draw_test

import (
	"testing"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

func TestColumnsFitTheScreen(t *testing.T) {
	table := draw.Table{
		Columns: []draw.ColumnLayout{
			{Name: "HOST", Width: 6, Least: 6},
			{Name: "N", Width: 3, Right: true},
			{Name: "USERS", Width: 5, Least: 5, Order: 1},
			{Name: "AGE", Width: 3, Right: true, Order: 2},
		},
		Rows: []draw.TableRow{{Prefix: "> ", Cells: []draw.Cell{draw.Text("a-long-name"), draw.Text("7"), draw.Text("alice bob"), draw.Text("3s")}}},
		Sort: 2, Backward: true,
	}
	for screen, want := range map[int][]string{
		40: {"  HOST          Nv  USERS      AGE      ", "> a-long-name    7  alice bob   3s"},
		30: {"  HOST       Nv  USERS     AGE", "> a-long-…    7  alice b…   3s"},
		20: {"  HOST       Nv  AGE", "> a-long-…    7   3s"},
		14: {"  HOST      Nv", "> a-long…    7"},
	} {
		lines := table.Lines(screen)
		for i := range lines {
			lines[i] = ansi.Strip(lines[i])
		}
		require.Equal(t, want, lines, screen)
	}
}

func TestShownIsOneLineWithoutControls(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "two\nlines": "two lines", "\x1b[31mred": `\x1b[31mred`, "e\u0301": "e?", "ä": "ä",
	} {
		require.Equal(t, want, draw.Shown(text), "%q", text)
	}
}

func TestPainterWithoutColours(t *testing.T) {
	require.Equal(t, "x", draw.Painter{}.Paint("x", draw.Red))
	require.Equal(t, "\x1b[1mx\x1b[0m", draw.Painter{}.Paint("x", draw.Bold, draw.Red))
	require.Equal(t, "\x1b[1;31mx\x1b[0m", draw.Painter{Colour: true}.Paint("x", draw.Bold, draw.Red))
}
