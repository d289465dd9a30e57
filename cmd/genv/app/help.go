package app

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/render"
)

// The layout of --help.
const (
	margin     = 3
	gap        = 2
	textIndent = 10  // of a text that has no room next to its name
	leastRoom  = 30  // for a text next to its name
	mostWidth  = 120 // longer lines are hard to read
)

// printHelp is a cli.HelpPrinter. As with package cli, a closed pipe is the reader's wish.
func printHelp(w io.Writer, _ string, of any) {
	switch of := of.(type) {
	case *cli.App:
		page := PageOf(Root(of), of.Name)
		_ = WriteHelp(w, &page, render.Width(w))
	case *cli.Command:
		page := PageOf(of, of.HelpName)
		_ = WriteHelp(w, &page, render.Width(w))
	}
}

// WriteHelp writes a page as --help prints it: wrapped to the width of the terminal, or not at
// all if that is 0.
func WriteHelp(w io.Writer, p *Page, width int) error {
	h := helpText{width: min(width, mostWidth)}
	h.section("NAME", p.Name+" - "+p.Usage)
	h.section("USAGE", strings.TrimSpace(p.Name+" "+p.Synopsis))
	if len(p.Description) > 0 {
		h.section("DESCRIPTION", strings.Split(strings.Join(p.Description, "\n\n"), "\n")...)
	}
	h.columns("COMMANDS", p.Commands)
	var options []Entry
	for i := range p.Options {
		options = append(options, p.Options[i].entry())
	}
	h.columns("OPTIONS", options)
	h.columns("EXAMPLES", p.Examples)
	_, err := io.WriteString(w, strings.TrimPrefix(h.String(), "\n"))
	return err
}

// helpText is the text that is being written.
type helpText struct {
	strings.Builder
	width int // 0 if it is not known
}

func (h *helpText) section(title string, lines ...string) {
	h.WriteString("\n" + title + ":\n")
	for _, line := range lines {
		if !strings.HasPrefix(line, " ") { // else it is laid out already
			line = render.Wrap(line, margin, h.width)
		}
		h.line(line)
	}
}

func (h *helpText) line(line string) {
	h.WriteString(strings.TrimRight(strings.Repeat(" ", margin)+line, " ") + "\n")
}

// columns writes rows of two columns. Where the second has too little room, each text is on
// lines of its own.
func (h *helpText) columns(title string, rows []Entry) {
	if len(rows) == 0 {
		return
	}
	names, texts := 0, 0
	for _, row := range rows {
		names, texts = max(names, utf8.RuneCountInString(row.Name)), max(texts, utf8.RuneCountInString(row.Text))
	}
	indent := margin + names + gap
	stacked := h.width > 0 && indent+min(texts, leastRoom) > h.width
	h.section(title)
	for _, row := range rows {
		if stacked {
			h.line(row.Name)
			h.line(strings.Repeat(" ", textIndent-margin) + render.Wrap(row.Text, textIndent, h.width))
			continue
		}
		h.line(row.Name + strings.Repeat(" ", names-utf8.RuneCountInString(row.Name)+gap) + render.Wrap(row.Text, indent, h.width))
	}
}
