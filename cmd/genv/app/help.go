package app

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/seed-3119e985/genv/cmd/genv/render"
)

// The layout of --helpText.
const (
	margin     = 3
	gap        = 2
	textIndent = 10  // of a text that has no room beside its name
	leastRoom  = 30  // for a text beside its name
	mostWidth  = 120 // longer lines are hard to read
)

// WriteHelp writes a page as --helpText prints it: wrapped to the width of the terminal, or not at
// all if that is 0.
func WriteHelp(w io.Writer, p *Page, width int) error {
	h := helpText{width: min(width, mostWidth)}
	h.section("NAME", p.Name+" - "+p.Usage)
	h.section("USAGE", p.Synopsis...)
	if len(p.Description) > 0 {
		h.section("DESCRIPTION", strings.Split(strings.Join(p.Description, "\n\n"), "\n")...)
	}
	if len(p.Commands) > 0 {
		h.columns("COMMANDS", p.Commands)
	}
	rows := make([]Entry, len(p.Options))
	for i := range p.Options {
		rows[i] = p.Options[i].row()
	}
	h.columns("OPTIONS", rows)
	if len(p.Examples) > 0 {
		rows := make([]Entry, len(p.Examples))
		for i, e := range p.Examples {
			rows[i] = Entry{e.Line, e.Text}
		}
		h.columns("EXAMPLES", rows)
	}
	_, err := io.WriteString(w, h.String())
	return err
}

// helpText is the text that is being written.
type helpText struct {
	strings.Builder
	width int // 0 if it is not known
}

func (h *helpText) section(title string, lines ...string) {
	h.title(title)
	for _, line := range lines {
		if !strings.HasPrefix(line, " ") { // else it is laid out already
			line = render.Wrap(line, margin, h.width)
		}
		h.line(line)
	}
}

func (h *helpText) title(title string) {
	if h.Len() > 0 {
		h.WriteString("\n")
	}
	fmt.Fprintf(h, "%s:\n", title)
}

func (h *helpText) line(line string) {
	h.WriteString(strings.TrimRight(strings.Repeat(" ", margin)+line, " ") + "\n")
}

func (o *Option) row() Entry {
	name := strings.Join(o.Names, ", ")
	if o.Value != "" {
		name += " " + o.Value
	}
	text := o.Text
	if o.Default != "" {
		text += fmt.Sprintf(" (default: %s)", o.Default)
	}
	return Entry{name, text}
}

// columns writes rows of two columns. Where the second has too little room, each text is on
// lines of its own.
func (h *helpText) columns(title string, rows []Entry) {
	names, texts := 0, 0
	for _, row := range rows {
		names, texts = max(names, utf8.RuneCountInString(row.Name)), max(texts, utf8.RuneCountInString(row.Text))
	}
	indent := margin + names + gap
	stacked := h.width > 0 && indent+min(texts, leastRoom) > h.width
	h.title(title)
	for _, row := range rows {
		if stacked {
			h.line(row.Name)
			h.line(strings.Repeat(" ", textIndent-margin) + render.Wrap(row.Text, textIndent, h.width))
			continue
		}
		h.line(row.Name + strings.Repeat(" ", names-utf8.RuneCountInString(row.Name)+gap) + render.Wrap(row.Text, indent, h.width))
	}
}
