package top

import (
	"strings"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// style is what a text looks like: the parameters of an SGR sequence. The colours are the
// terminal's own first eight, so that they fit its background.
type style string

const (
	plain     style = ""
	bold      style = "1"
	faint     style = "2"
	underline style = "4"
	reverse   style = "7"
	red       style = "31"
	green     style = "32"
	yellow    style = "33"
	magenta   style = "35"
	cyan      style = "36"

	// bar is the background of what is selected, with a text that can be read on it. It needs
	// 256 colours, and looks the same on all terminals that have these.
	bar style = "38;5;255;48;5;238"
)

// onBar is a style that can be read on a bar.
func (s style) onBar() style {
	switch s {
	case faint:
		return "38;5;249"
	case red:
		return "38;5;210"
	case green:
		return "38;5;120"
	case yellow:
		return "38;5;221"
	case magenta:
		return "38;5;213"
	case cyan:
		return "38;5;123"
	}
	return s
}

// span is a piece of a line.
type span struct {
	text  string
	style style
}

// cell is what a row has in a column.
type cell []span

func textCell(s string) cell { return cell{{text: s}} }

func styledCell(s string, as style) cell { return cell{{s, as}} }

func (c cell) width() (n int) {
	for _, s := range c {
		n += width(s.text)
	}
	return n
}

func (c cell) plain() string {
	var b strings.Builder
	for _, s := range c {
		b.WriteString(s.text)
	}
	return b.String()
}

// cut shortens a cell to a width; … is where it was cut.
func (c cell) cut(most int) cell {
	if c.width() <= most {
		return c
	}
	if most <= 0 {
		return nil
	}
	var short cell
	for _, s := range c {
		w := width(s.text)
		if w >= most { // the rest doesn't fit, or only without the mark
			return append(short, span{ansi.Truncate(s.text+"……", most, "…"), s.style})
		}
		short, most = append(short, s), most-w
	}
	return short
}

// painter writes spans for a terminal.
type painter struct {
	colour bool
	many   bool // the terminal has 256 colours or more
}

// selected is a span of something that is selected. All of that has one background: with few
// colours also one colour of the text, as not every other one could be read on it.
func (p painter) selected(s span) string {
	if p.colour && p.many {
		return p.paint(s.text, bar, s.style.onBar())
	}
	return p.paint(s.text, reverse)
}

// paint writes a text in a style and one that is added to it.
func (p painter) paint(s string, styles ...style) string {
	var codes []string
	for _, st := range styles {
		if st != plain && (p.colour || st == bold || st == faint || st == underline || st == reverse) {
			codes = append(codes, string(st))
		}
	}
	if s == "" || len(codes) == 0 {
		return s
	}
	return "\x1b[" + strings.Join(codes, ";") + "m" + s + "\x1b[m"
}

// width is how many columns a text takes on a terminal.
func width(s string) int { return ansi.StringWidth(s) }

// maxText is how many bytes of a foreign text are looked at: more don't fit on a screen.
const maxText = 2048

// shown is a foreign text on one line, as a terminal may see it. Terminals don't agree on
// how wide some sequences of characters are; those are replaced by question marks, as are
// marks that are drawn over other characters.
func shown(s string) string {
	s = text.OneLine(text.Cut(s, maxText))
	if isASCII(s) {
		return s
	}
	s = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.M, r) {
			return '?'
		}
		return r
	}, s)
	if ansi.StringWidth(s) == ansi.StringWidthWc(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII {
			return '?'
		}
		return r
	}, s)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] > unicode.MaxASCII {
			return false
		}
	}
	return true
}
