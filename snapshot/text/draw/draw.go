// Package draw draws styled text and tables for a terminal.
//
//	t := draw.Table{Columns: []draw.ColumnLayout{{Name: "HOST", Least: 10}}, Rows: rows}
//	lines := t.Lines(80) // none is wider than 80 columns
//
// Foreign text passes through Shown first, so that none of it reaches the terminal as a control sequence.
package draw

import (
	"slices"
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// ColumnLayout is the layout of a table's column.
type ColumnLayout struct {
	Name  string
	Width int  // minimum
	Least int  // minimum after cutting; 0 for uncut
	Order int  // in which columns are left out without room, 1 first; 0 for never
	Right bool // aligned to the right
}

// TableRow has a cell for each column.
type TableRow struct {
	Prefix   string // two columns wide
	Selected bool
	Cells    []Cell
}

// Table draws rows under the names of columns.
type Table struct {
	Painter  Painter
	Columns  []ColumnLayout
	Rows     []TableRow       // the visible ones
	Sort     int              // the column that sorts the rows, 1 for the first one; 0 for none
	Backward bool             // the rows are sorted backward
	Old      bool             // the data are old
	Length   func(string) int // of a text; nil for its columns on a terminal
	widths   []int            // of the columns, or leftOut
}

// Lines returns the head and the rows after a prefix, none wider than the screen.
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

// Write writes the rows after Fit, without trailing spaces.
func (t *Table) Write(b *strings.Builder, head bool) {
	if head {
		b.WriteString(strings.TrimRight(t.Line(t.Head()), " ") + "\n")
	}
	for i := range t.Rows {
		b.WriteString(strings.TrimRight(t.Line(t.Rows[i].Cells), " ") + "\n")
	}
}

// Line draws a row of these cells after Fit.
func (t *Table) Line(cells []Cell) string { return t.painted(t.line("", cells), t.row) }

// Head has the names of the columns, with a mark at the one that sorts the rows.
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

func (t *Table) filled(line Cell, screen int, paint func(Span) string) string {
	return t.painted(append(line, Span{Text: strings.Repeat(" ", max(0, screen-line.width(Width)))}), paint)
}

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

// Fit leaves out and cuts columns until a line has at most screen characters, if possible; 0 is unlimited. It returns
// the length of the longest line.
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

// LeftOut names the columns for which Fit found no room.
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

// Distinct is the number of characters that tell names apart.
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

// Style has the parameters of an SGR sequence. Colours are the terminal's own first eight, which fit its background.
type Style string

// Styles.
const (
	Plain     Style = ""
	Bold      Style = "1"
	Faint     Style = "2"
	Underline Style = "4"
	Reverse   Style = "7"
	Red       Style = "31"
	Green     Style = "32"
	Yellow    Style = "33"
	Magenta   Style = "35"
	Cyan      Style = "36"

	bar Style = "38;5;255;48;5;238" // background and text of a selection; needs 256 colours
)

func (s Style) onBar() Style {
	for _, readable := range [][2]Style{
		{Faint, "38;5;249"},
		{Red, "38;5;210"},
		{Green, "38;5;120"},
		{Yellow, "38;5;221"},
		{Magenta, "38;5;213"},
		{Cyan, "38;5;123"},
	} {
		if s == readable[0] {
			return readable[1]
		}
	}
	return s
}

// Span is a piece of a line.
type Span struct {
	Text  string
	Style Style
}

// Cell is a row's content in a column.
type Cell []Span

// Text is a cell without a style.
func Text(s string) Cell { return Cell{{Text: s}} }

// Styled is a cell of one style.
func Styled(s string, as Style) Cell { return Cell{{s, as}} }

func (c Cell) width(length func(string) int) (n int) {
	for _, s := range c {
		n += length(s.Text)
	}
	return n
}

// Plain is a cell's text.
func (c Cell) Plain() string {
	var b strings.Builder
	for _, s := range c {
		b.WriteString(s.Text)
	}
	return b.String()
}

func (c Cell) cut(most int) Cell {
	if most <= 0 {
		return nil
	}
	var short Cell
	for _, s := range c {
		w := Width(s.Text)
		if w >= most { // the rest doesn't fit, or not with …
			return append(short, Span{ansi.Truncate(s.Text+"……", most, "…"), s.Style})
		}
		short, most = append(short, s), most-w
	}
	return short
}

// Painter writes spans for a terminal.
type Painter struct {
	Colour bool
	Many   bool // the terminal has 256 colours or more
}

// Selected paints a selected span on one background; with few colours in one colour, since others might be unreadable.
func (p Painter) Selected(s Span) string {
	if p.Colour && p.Many {
		return p.Paint(s.Text, bar, s.Style.onBar())
	}
	return p.Paint(s.Text, Reverse)
}

// Paint writes a text in the sum of styles.
func (p Painter) Paint(s string, styles ...Style) string {
	var codes []string
	for _, st := range styles {
		if st != Plain && (p.Colour || st == Bold || st == Faint || st == Underline || st == Reverse) {
			codes = append(codes, string(st))
		}
	}
	if s == "" || len(codes) == 0 {
		return s
	}
	return "\x1b[" + strings.Join(codes, ";") + "m" + s + "\x1b[0m"
}

// Width is the number of columns of a text on a terminal.
func Width(s string) int { return ansi.StringWidth(s) }

// MaxText limits a foreign text in bytes: more don't fit on a screen.
const MaxText = 2048

// Shown puts a foreign text on one line. Question marks replace combining marks, and sequences whose width differs
// between terminals.
func Shown(s string) string {
	s = text.OneLine(text.Cut(s, MaxText))
	if !strings.ContainsFunc(s, notASCII) {
		return s
	}
	s = without(s, func(r rune) bool { return unicode.Is(unicode.M, r) })
	if ansi.StringWidth(s) != ansi.StringWidthWc(s) {
		s = without(s, notASCII)
	}
	return s
}

func notASCII(r rune) bool { return r > unicode.MaxASCII }

func without(s string, these func(rune) bool) string {
	return strings.Map(func(r rune) rune {
		if these(r) {
			return '?'
		}
		return r
	}, s)
}
