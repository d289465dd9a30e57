package draw

import (
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Style is what a text looks like: the parameters of an SGR sequence. The colours are the
// terminal's own first eight, so that they fit its background.
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

	// bar is the background of what is selected, with a text that can be read on it. It needs
	// 256 colours, and looks the same on all terminals that have these.
	bar Style = "38;5;255;48;5;238"
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

// Selected is a span of something that is selected. All of that has one background: with few
// colours also one colour of the text, as not every other one could be read on it.
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

// Shown is a foreign text on one line, as a terminal may see it. Terminals don't agree on how wide some sequences of
// characters are; those are replaced by question marks, as are marks that are drawn over other characters.
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
