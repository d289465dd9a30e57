package top

import (
	"strings"
	"time"
)

const gap = 2 // spaces between two columns

// table is rows that are drawn under the names of columns.
type table struct {
	painter  painter
	scene    *scene
	columns  []column
	rows     []row // those that are visible
	now      time.Time
	sort     int // the column that the rows are sorted by; -1 for none
	backward bool
	old      bool // the data are old
	// mark says what is in front of a row, and whether it is selected.
	mark func(*row) (prefix string, selected bool)
}

// lines are the head and the rows, each as wide as the screen at most.
func (t *table) lines(screen int) []string {
	cells := make([][]cell, len(t.rows))
	for i := range t.rows {
		cells[i] = make([]cell, len(t.columns))
		for j := range t.columns {
			cells[i][j] = t.columns[j].cell(t.scene, &t.rows[i], t.now)
		}
	}
	widths := t.widths(cells, screen-2)
	head := make([]cell, len(t.columns))
	for j := range t.columns {
		head[j] = textCell(t.title(j))
	}
	lines := []string{t.filled(t.line("  ", head, widths), screen, t.heading)}
	for i := range t.rows {
		prefix, selected := t.mark(&t.rows[i])
		line := t.line(prefix, cells[i], widths)
		if selected {
			lines = append(lines, t.filled(line, screen, t.painter.selected))
		} else {
			lines = append(lines, t.painted(line, t.row))
		}
	}
	return lines
}

func (t *table) heading(s span) string { return t.painter.paint(s.text, bold, underline) }

func (t *table) row(s span) string {
	if t.old {
		return t.painter.paint(s.text, faint, s.style)
	}
	return t.painter.paint(s.text, s.style)
}

func (t *table) painted(line cell, paint func(span) string) string {
	var b strings.Builder
	for _, s := range line {
		b.WriteString(paint(s))
	}
	return b.String()
}

// filled is a line that is painted up to the edge of the screen.
func (t *table) filled(line cell, screen int, paint func(span) string) string {
	return t.painted(append(line, span{text: strings.Repeat(" ", max(0, screen-line.width()))}), paint)
}

// title is the name of a column, with a mark if the rows are sorted by it.
func (t *table) title(j int) string {
	switch {
	case j != t.sort:
		return t.columns[j].name
	case t.backward:
		return t.columns[j].name + "v"
	}
	return t.columns[j].name + "^"
}

// widths are those of the columns; 0 for one that is left out.
func (t *table) widths(cells [][]cell, screen int) []int {
	widths := make([]int, len(t.columns))
	for j := range t.columns {
		widths[j] = max(t.columns[j].least, width(t.title(j)))
		for i := range cells {
			widths[j] = max(widths[j], cells[i][j].width())
		}
	}
	t.squeeze(widths, screen)
	for used(widths) > screen {
		out := -1
		for j, c := range t.columns {
			if widths[j] > 0 && c.drop > 0 && (out < 0 || c.drop > t.columns[out].drop) {
				out = j
			}
		}
		if out < 0 {
			break // the lines are cut
		}
		widths[out] = 0
	}
	return t.widened(widths, cells, screen)
}

// squeeze takes what is too much from the widest flexible columns.
func (t *table) squeeze(widths []int, screen int) {
	for used(widths) > screen {
		widest := -1
		for j, c := range t.columns {
			if c.flexible && widths[j] > c.least && (widest < 0 || widths[j] > widths[widest]) {
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
func (t *table) widened(widths []int, cells [][]cell, screen int) []int {
	for j, c := range t.columns {
		spare := screen - used(widths)
		if !c.flexible || widths[j] == 0 || spare <= 0 {
			continue
		}
		need := widths[j]
		for i := range cells {
			need = max(need, cells[i][j].width())
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
func (t *table) line(prefix string, cells []cell, widths []int) cell {
	line := cell{{text: prefix}}
	space := 0
	for j, w := range widths {
		if w == 0 {
			continue
		}
		c := cells[j].cut(w)
		blank := w - c.width()
		if t.columns[j].right {
			space, blank = space+blank, 0
		}
		line = append(append(line, span{text: strings.Repeat(" ", space)}), c...)
		space = blank + gap
	}
	return line
}
