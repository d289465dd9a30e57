package app

import (
	"fmt"
	"io"
	"strings"
)

// WriteMan writes a page in the language of man(7).
func WriteMan(w io.Writer, p *Page, version string) error {
	m := &roff{}
	m.macro("TH", strings.ToUpper(p.FileName()), "1", "", "genv "+version, "genv manual")
	m.raw(".nh\n.ad l") // words, names and paths stay whole
	m.macro("SH", "NAME")
	m.raw(escape(p.FileName()) + ` \- ` + escape(strings.ReplaceAll(p.Usage, "`", ""))) // as whatis(1) reads it
	m.macro("SH", "SYNOPSIS")
	for i, line := range p.Synopsis {
		if i > 0 {
			m.raw(".br")
		}
		m.raw(synopsis(p.Name, line))
	}
	m.macro("SH", "DESCRIPTION")
	m.paragraphs(p.descriptionOrUsage())
	m.entries("COMMANDS", p.Commands)
	m.macro("SH", "OPTIONS")
	for i := range p.Options {
		m.option(&p.Options[i])
	}
	m.entries("EXIT STATUS", p.exitStatus())
	m.entries("ENVIRONMENT", p.environment())
	m.entries("FILES", p.files())
	m.examples(p.Examples)
	m.macro("SH", "SEE ALSO")
	m.raw(seeAlso(p))
	_, err := io.WriteString(w, m.b.String())
	return err
}

// FileName is the name of the page, which is that of its file without the section.
func (p *Page) FileName() string { return strings.ReplaceAll(p.Name, " ", "-") }

func (p *Page) descriptionOrUsage() []string {
	if len(p.Description) > 0 {
		return p.Description
	}
	return []string{strings.ToUpper(p.Usage[:1]) + p.Usage[1:] + "."}
}

// roff is a text for groff(1).
type roff struct{ b strings.Builder }

func (m *roff) raw(line string) { m.b.WriteString(line + "\n") }

// macro writes a request with its arguments.
func (m *roff) macro(name string, arguments ...string) {
	line := "." + name
	for _, a := range arguments {
		line += ` "` + escape(a) + `"`
	}
	m.raw(line)
}

// text writes words that are filled into lines. What is in backquotes is bold.
func (m *roff) text(words string) {
	parts := strings.Split(escape(strings.Join(strings.Fields(words), " ")), `\(ga`)
	for i := 1; i+1 < len(parts); i += 2 {
		parts[i] = `\fB` + parts[i] + `\fP`
	}
	if len(parts)%2 == 0 { // a backquote without another one
		last := len(parts) - 1
		parts[last-1] += `\(ga` + parts[last]
		parts = parts[:last]
	}
	m.raw(`\&` + strings.Join(parts, ""))
}

func (m *roff) paragraphs(list []string) {
	for i, p := range list {
		if i > 0 {
			m.raw(".PP")
		}
		m.text(p)
	}
}

func (m *roff) entries(title string, entries []Entry) {
	if len(entries) == 0 {
		return
	}
	m.macro("SH", title)
	for _, e := range entries {
		m.raw(".TP")
		m.raw(bold(e.Name))
		m.text(e.Text)
	}
}

func (m *roff) option(o *Option) {
	names := make([]string, len(o.Names))
	for i, name := range o.Names {
		names[i] = bold(name)
	}
	tag := strings.Join(names, ", ")
	if o.Value != "" {
		tag += " " + italic(o.Value)
	}
	text := o.Text + "."
	if o.Default != "" {
		text += " Default: " + o.Default + "."
	}
	m.raw(".TP")
	m.raw(tag)
	m.text(strings.ToUpper(text[:1]) + text[1:])
}

func (m *roff) examples(list []Example) {
	if len(list) == 0 {
		return
	}
	m.macro("SH", "EXAMPLES")
	for _, e := range list {
		m.raw(".TP")
		m.raw(bold(e.Line))
		m.text(strings.ToUpper(e.Text[:1]) + e.Text[1:] + ".")
	}
}

func bold(text string) string   { return `\fB` + escape(text) + `\fP` }
func italic(text string) string { return `\fI` + escape(text) + `\fP` }

// synopsis writes the command bold, and placeholders in italics.
func synopsis(name, line string) string {
	rest, ok := strings.CutPrefix(line, name)
	if !ok {
		return `\&` + escape(line)
	}
	return bold(name) + escape(rest)
}

func seeAlso(p *Page) string {
	var pages []string
	if parent := p.Name[:max(strings.LastIndexByte(p.Name, ' '), 0)]; parent != "" {
		pages = append(pages, parent)
	}
	for _, c := range p.Commands {
		pages = append(pages, p.Name+" "+c.Name)
	}
	for i, page := range pages {
		pages[i] = bold(strings.ReplaceAll(page, " ", "-")) + "(1)"
	}
	return strings.Join(pages, ",\n")
}

// escape writes text so that groff prints it as it is, also at the beginning of a line and
// in the quoted argument of a macro. What isn't ASCII is written by its number.
func escape(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch {
		case special(r) != "":
			b.WriteString(special(r))
		case i == 0 && r == '.': // would begin a request
			b.WriteString(`\&.`)
		case r == '\n' || r == '\t':
			b.WriteByte(' ')
		case r < ' ' || r == 0x7f: // not a character of a text
		case r > '~':
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// special is how groff writes a character that means something to it, or that it would
// print as another one, such as a hyphen for -.
func special(r rune) string {
	switch r {
	case '\\':
		return `\(rs`
	case '-':
		return `\-`
	case '\'':
		return `\(aq`
	case '`':
		return `\(ga`
	case '"':
		return `\(dq`
	case '^':
		return `\(ha`
	case '~':
		return `\(ti`
	case '…':
		return "..."
	}
	return ""
}
