package manual

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// WriteHelp writes a page as --help prints it.
func WriteHelp(w io.Writer, p *Page) error {
	var b strings.Builder
	section(&b, "NAME", p.Name+" - "+p.Usage)
	section(&b, "USAGE", p.Synopsis...)
	if len(p.Description) > 0 {
		section(&b, "DESCRIPTION", strings.Split(strings.Join(p.Description, "\n\n"), "\n")...)
	}
	if len(p.Commands) > 0 {
		rows := make([]Entry, len(p.Commands))
		copy(rows, p.Commands)
		section(&b, "COMMANDS", columns(rows)...)
	}
	rows := make([]Entry, len(p.Options))
	for i := range p.Options {
		rows[i] = p.Options[i].row()
	}
	section(&b, "OPTIONS", columns(rows)...)
	if len(p.Examples) > 0 {
		rows := make([]Entry, len(p.Examples))
		for i, e := range p.Examples {
			rows[i] = Entry{e.Line, e.Text}
		}
		section(&b, "EXAMPLES", columns(rows)...)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func section(b *strings.Builder, title string, lines ...string) {
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	fmt.Fprintf(b, "%s:\n", title)
	for _, line := range lines {
		b.WriteString(strings.TrimRight("   "+line, " ") + "\n")
	}
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

// columns are rows of two columns.
func columns(rows []Entry) []string {
	width := 0
	for _, row := range rows {
		width = max(width, utf8.RuneCountInString(row.Name))
	}
	lines := make([]string, len(rows))
	for i, row := range rows {
		lines[i] = row.Name + strings.Repeat(" ", width-utf8.RuneCountInString(row.Name)+2) + row.Text
	}
	return lines
}
