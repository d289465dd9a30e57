package draw

import "strings"

const gap = 2 // spaces between two columns

// Column is how a column of a table is laid out.
type Column struct {
	Name string
	// Least is the width that it has at least. A Flexible column is cut to that before
	// another one is left out; those with the highest Drop are left out first, and those
	// with 0 never.
	Least    int
	Flexible bool
	Drop     int
	Right    bool // what it has is at the right edge
}

// Row is a row of a table: a cell for each column, and what is in front of them.
type Row struct {
	Prefix   string // two columns wide
	Selected bool
	Cells    []Cell
}

// Table is rows that are drawn under the names of columns.
type Table struct {
	Painter  Painter
	Columns  []Column
	Rows     []Row // those that are visible
	Sort     int   // the column that the rows are sorted by; -1 for none
	Backward bool
	Old      bool // the data are old
}

// Lines are the head and the rows, each as wide as the screen at most.
func (t *Table) Lines(screen int) []string {
	widths := t.widths(screen - 2)
	head := make([]Cell, len(t.Columns))
	for j := range t.Columns {
		head[j] = Text(t.title(j))
	}
	lines := []string{t.filled(t.line("  ", head, widths), screen, t.heading)}
	for i := range t.Rows {
		r := &t.Rows[i]
		line := t.line(r.Prefix, r.Cells, widths)
		if r.Selected {
			lines = append(lines, t.filled(line, screen, t.Painter.Selected))
		} else {
			lines = append(lines, t.painted(line, t.row))
		}
	}
	return lines
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
	return t.painted(append(line, Span{Text: strings.Repeat(" ", max(0, screen-line.width()))}), paint)
}

// title is the name of a column, with a mark if the rows are sorted by it.
func (t *Table) title(j int) string {
	switch {
	case j != t.Sort:
		return t.Columns[j].Name
	case t.Backward:
		return t.Columns[j].Name + "v"
	}
	return t.Columns[j].Name + "^"
}

// widths are those of the columns; 0 for one that is left out.
func (t *Table) widths(screen int) []int {
	widths := make([]int, len(t.Columns))
	for j := range t.Columns {
		widths[j] = max(t.Columns[j].Least, Width(t.title(j)))
		for i := range t.Rows {
			widths[j] = max(widths[j], t.Rows[i].Cells[j].width())
		}
	}
	t.squeeze(widths, screen)
	for used(widths) > screen {
		out := -1
		for j, c := range t.Columns {
			if widths[j] > 0 && c.Drop > 0 && (out < 0 || c.Drop > t.Columns[out].Drop) {
				out = j
			}
		}
		if out < 0 {
			break // the lines are cut
		}
		widths[out] = 0
	}
	return t.widened(widths, screen)
}

// squeeze takes what is too much from the widest flexible columns.
func (t *Table) squeeze(widths []int, screen int) {
	for used(widths) > screen {
		widest := -1
		for j, c := range t.Columns {
			if c.Flexible && widths[j] > c.Least && (widest < 0 || widths[j] > widths[widest]) {
				widest = j
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// widened gives back to flexible columns what left-out ones don't need.
func (t *Table) widened(widths []int, screen int) []int {
	for j, c := range t.Columns {
		spare := screen - used(widths)
		if !c.Flexible || widths[j] == 0 || spare <= 0 {
			continue
		}
		need := widths[j]
		for i := range t.Rows {
			need = max(need, t.Rows[i].Cells[j].width())
		}
		widths[j] += min(spare, need-widths[j])
	}
	return widths
}

// used is how wide columns are together.
func used(widths []int) (n int) {
	for _, w := range widths {
		if w > 0 {
			n += w + gap
		}
	}
	return max(0, n-gap)
}

// line is a row with the spaces between its cells.
func (t *Table) line(prefix string, cells []Cell, widths []int) Cell {
	line := Cell{{Text: prefix}}
	space := 0
	for j, w := range widths {
		if w == 0 {
			continue
		}
		c := cells[j].cut(w)
		blank := w - c.width()
		if t.Columns[j].Right {
			space, blank = space+blank, 0
		}
		line = append(append(line, Span{Text: strings.Repeat(" ", space)}), c...)
		space = blank + gap
	}
	return line
}
