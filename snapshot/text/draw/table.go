// Package draw writes styled text and tables for a terminal. It knows nothing of what they say.
//
//	t := draw.Table{Columns: []draw.ColumnLayout{{Name: "HOST", Least: 10}}, Rows: rows}
//	lines := t.Lines(80) // none is wider than 80 columns
//
// Text of others passes through Shown first: nothing of it reaches the terminal as a control sequence.
package draw

import (
	"slices"
	"strings"
)

// ColumnLayout is how a column of a table is laid out.
type ColumnLayout struct {
	Name  string
	Width int  // that it has at least
	Least int  // to which it may be cut; 0 if it isn't cut
	Order int  // when it is left out if there is no room, 1 first; 0 for never
	Right bool // what it has is at the right edge
}

// TableRow is a row of a table: a cell for each column, and what is in front of them.
type TableRow struct {
	Prefix   string // two columns wide
	Selected bool
	Cells    []Cell
}

// Table is rows that are drawn under the names of columns.
type Table struct {
	Painter  Painter
	Columns  []ColumnLayout
	Rows     []TableRow       // those that are visible
	Sort     int              // the column that the rows are sorted by, 1 for the first one; 0 for none
	Backward bool             // the rows are sorted backward
	Old      bool             // the data are old
	Length   func(string) int // of a text; nil for the columns that it takes on a terminal
	widths   []int            // of the columns, or leftOut
}

// Lines are the head and the rows, each as wide as the screen at most, after a prefix.
func (t *Table) Lines(screen int) []string {
	t.Fit(max(1, screen-2))
	lines := []string{t.filled(t.line("  ", t.Head()), screen, t.heading)}
	for i := range t.Rows {
		r := &t.Rows[i]
		line := t.line(r.Prefix, r.Cells)
		if r.Selected {
			lines = append(lines, t.filled(line, screen, t.Painter.Selected))
		} else {
			lines = append(lines, t.painted(line, t.row))
		}
	}
	return lines
}

// Write writes the rows after Fit, without spaces at the ends of lines.
func (t *Table) Write(b *strings.Builder, head bool) {
	if head {
		b.WriteString(strings.TrimRight(t.Line(t.Head()), " ") + "\n")
	}
	for i := range t.Rows {
		b.WriteString(strings.TrimRight(t.Line(t.Rows[i].Cells), " ") + "\n")
	}
}

// Line is a row of these cells, after Fit.
func (t *Table) Line(cells []Cell) string { return t.painted(t.line("", cells), t.row) }

// Head are the names of the columns, with a mark at the one that the rows are sorted by.
func (t *Table) Head() []Cell {
	head := make([]Cell, len(t.Columns))
	for j, c := range t.Columns {
		if j+1 == t.Sort && t.Backward {
			c.Name += "v"
		} else if j+1 == t.Sort {
			c.Name += "^"
		}
		head[j] = Text(c.Name)
	}
	return head
}

func (t *Table) heading(s Span) string { return t.Painter.Paint(s.Text, Bold, Underline) }

func (t *Table) row(s Span) string {
	if t.Old {
		return t.Painter.Paint(s.Text, Faint, s.Style)
	}
	return t.Painter.Paint(s.Text, s.Style)
}

func (t *Table) painted(line Cell, paint func(Span) string) string {
	var b strings.Builder
	for _, s := range line {
		b.WriteString(paint(s))
	}
	return b.String()
}

// filled is a line that is painted up to the edge of the screen.
func (t *Table) filled(line Cell, screen int, paint func(Span) string) string {
	return t.painted(append(line, Span{Text: strings.Repeat(" ", max(0, screen-line.width(Width)))}), paint)
}

// line is a row with the spaces between its cells.
func (t *Table) line(prefix string, cells []Cell) Cell {
	line := Cell{{Text: prefix}}
	space := 0
	for j, w := range t.widths {
		if w == leftOut {
			continue
		}
		c := cells[j]
		if c.width(t.length()) > w {
			c = c.cut(w)
		}
		blank := w - c.width(t.length())
		if t.Columns[j].Right {
			space, blank = space+blank, 0
		}
		line = append(append(line, Span{Text: strings.Repeat(" ", space)}), c...)
		space = blank + Gap
	}
	return line
}

// Gap is the number of spaces between two columns.
const Gap = 2

const leftOut = -1

// Fit leaves columns out and cuts others until a line has at most screen characters, if that
// is possible; 0 is any number. It returns how many the longest line has.
func (t *Table) Fit(screen int) int {
	t.widths = make([]int, len(t.Columns))
	head, length := t.Head(), t.length()
	for j, c := range t.Columns {
		t.widths[j] = max(c.Width, head[j].width(length))
		for i := range t.Rows {
			t.widths[j] = max(t.widths[j], t.Rows[i].Cells[j].width(length))
		}
	}
	if screen > 0 {
		squeeze(t.Columns, t.widths, screen)
	}
	return lineLength(t.widths)
}

// LeftOut are the names of the columns for which Fit found no room.
func (t *Table) LeftOut() (names []string) {
	for j, w := range t.widths {
		if w == leftOut {
			names = append(names, t.Columns[j].Name)
		}
	}
	return names
}

func (t *Table) length() func(string) int {
	if t.Length == nil {
		return Width
	}
	return t.Length
}

// squeeze fits columns into a screen: it leaves out those without room, and cuts the widest others.
func squeeze(columns []ColumnLayout, widths []int, screen int) {
	least := slices.Clone(widths)
	for i, c := range columns {
		if c.Least > 0 {
			least[i] = min(c.Least, widths[i])
		}
	}
	for lineLength(least) > screen {
		out := -1
		for i, c := range columns {
			if c.Order > 0 && widths[i] != leftOut && (out < 0 || c.Order < columns[out].Order) {
				out = i
			}
		}
		if out < 0 {
			break
		}
		widths[out], least[out] = leftOut, leftOut
	}
	for lineLength(widths) > screen {
		widest := -1
		for i, w := range widths {
			if w > least[i] && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
}

func lineLength(widths []int) int {
	n := -Gap
	for _, w := range widths {
		if w != leftOut {
			n += w + Gap
		}
	}
	return n
}

// Distinct is how many characters of names it takes to tell them apart.
func Distinct(names []string) (most int) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	for i := 1; i < len(names); i++ {
		before, same := []rune(names[i-1]), 0
		for at, r := range []rune(names[i]) {
			if at >= len(before) || before[at] != r {
				break
			}
			same++
		}
		most = max(most, same+1)
	}
	return most
}
