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
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// ColumnLayout is how a column of a table is laid out.
type ColumnLayout struct {
	Name  string
	Width int  // that it has at least
	Least int  // to which it may be cut; 0 if it isn't cut
	Order int  // when it is left out if there is no room, 1 first; 0 for never
	Right bool // its cells are at the right edge
}

// TableRow is a row of a table, with a cell for each column.
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

// Fit leaves columns out and cuts others until a line has at most screen characters, if possible; 0 is any number. It
// returns how many the longest line has.
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

// Style is the parameters of an SGR sequence. The colours are the terminal's own first eight, which fit its background.
type Style string

// The styles.
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

	bar Style = "38;5;255;48;5;238" // the background of what is selected, and a text on it; needs 256 colours
)

// onBar is a style that can be read on a bar.
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

// Cell is what a row has in a column.
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

// Plain is the text of a cell.
func (c Cell) Plain() string {
	var b strings.Builder
	for _, s := range c {
		b.WriteString(s.Text)
	}
	return b.String()
}

// cut shortens a cell that is wider than that; … is where it was cut.
func (c Cell) cut(most int) Cell {
	if most <= 0 {
		return nil
	}
	var short Cell
	for _, s := range c {
		w := Width(s.Text)
		if w >= most { // the rest doesn't fit, or only without the mark
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

// Selected is a span of something that is selected, on one background. With few colours the text has one colour, too:
// others might not be readable.
func (p Painter) Selected(s Span) string {
	if p.Colour && p.Many {
		return p.Paint(s.Text, bar, s.Style.onBar())
	}
	return p.Paint(s.Text, Reverse)
}

// Paint writes a text in a style and one that is added to it.
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

// Width is how many columns a text takes on a terminal.
func Width(s string) int { return ansi.StringWidth(s) }

// MaxText is how many bytes of a foreign text are looked at: more don't fit on a screen.
const MaxText = 2048

// Shown is a foreign text on one line, as a terminal may see it. Question marks replace what is drawn over other
// characters, and sequences on the width of which terminals don't agree.
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

// without has question marks in place of some characters.
func without(s string, these func(rune) bool) string {
	return strings.Map(func(r rune) rune {
		if these(r) {
			return '?'
		}
		return r
	}, s)
}
