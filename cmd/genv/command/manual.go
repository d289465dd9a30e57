package command

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"
)

// manCommand is `genv man`, which writes all man pages. root is the whole program.
func manCommand(root func() *cli.App) *cli.Command {
	return &cli.Command{
		Name: "man", Usage: "write the man pages of all commands into a folder", ArgsUsage: "DIR", Hidden: true,
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return UsageError("missing folder: write `genv man DIR`")
			}
			app := root()
			return writeAll(c.Args().First(), Root(app), app.Name, app.Version)
		},
	}
}

// writeAll writes a man page for a command and for each visible one below it, as NAME.1 into an
// existing folder.
func writeAll(dir string, cmd *cli.Command, name, version string) error {
	page := PageOf(cmd, name)
	if err := os.WriteFile(filepath.Join(dir, page.FileName()+".1"), []byte(page.Man(version)), 0o644); err != nil {
		return fmt.Errorf("write man page: %w", err)
	}
	for _, sub := range visible(cmd.Subcommands) {
		if err := writeAll(dir, sub, name+" "+sub.Name, version); err != nil {
			return err
		}
	}
	return nil
}

// FileName is the name of the page, which is that of its file without the section.
func (p *HelpPage) FileName() string { return strings.ReplaceAll(p.Name, " ", "-") }

// Man is the page in the language of man(7).
func (p *HelpPage) Man(version string) string {
	m := &roff{}
	m.macro("TH", strings.ToUpper(p.FileName()), "1", "", "genv "+version, "genv manual")
	m.raw(".nh\n.ad l") // words, names and paths stay whole
	m.macro("SH", "NAME")
	m.raw(escape(p.FileName()) + ` \- ` + escape(strings.ReplaceAll(p.Usage, "`", ""))) // as whatis(1) reads it
	m.macro("SH", "SYNOPSIS")
	m.raw(strings.TrimSpace(bold(p.Name) + " " + escape(p.Synopsis)))
	m.macro("SH", "DESCRIPTION")
	if len(p.Description) == 0 {
		m.text(sentence(p.Usage))
	}
	for i, paragraph := range p.Description {
		if i > 0 {
			m.raw(".PP")
		}
		m.text(paragraph)
	}
	for _, group := range p.Commands {
		m.entries(group.Title, group.Of)
	}
	for _, group := range p.Options {
		m.macro("SH", group.Title)
		for i := range group.Of {
			m.option(&group.Of[i])
		}
	}
	m.entries("EXIT STATUS", p.exitStatus())
	m.entries("ENVIRONMENT", p.factsOf("ENVIRONMENT"))
	m.entries("FILES", p.factsOf("FILES"))
	var examples []Entry
	for _, e := range p.Examples {
		examples = append(examples, Entry{e.Name, sentence(e.Text)})
	}
	m.entries("EXAMPLES", examples)
	m.macro("SH", "SEE ALSO")
	m.raw(strings.Join(p.seeAlso(), ",\n"))
	return m.String()
}

// seeAlso are the pages of the commands above and below.
func (p *HelpPage) seeAlso() (pages []string) {
	if end := strings.LastIndexByte(p.Name, ' '); end > 0 {
		pages = append(pages, p.Name[:end])
	}
	for _, group := range p.Commands {
		for _, c := range group.Of {
			pages = append(pages, p.Name+" "+c.Name)
		}
	}
	for i, page := range pages {
		pages[i] = bold(strings.ReplaceAll(page, " ", "-")) + "(1)"
	}
	return pages
}

func sentence(words string) string { return strings.ToUpper(words[:1]) + words[1:] + "." }

// roff is a text for groff(1).
type roff struct{ strings.Builder }

func (m *roff) raw(line string) { m.WriteString(line + "\n") }

// macro writes a request with its arguments.
func (m *roff) macro(name string, arguments ...string) {
	line := "." + name
	for _, a := range arguments {
		line += ` "` + escape(a) + `"`
	}
	m.raw(line)
}

// inQuotes is an escaped text in backquotes.
var inQuotes = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\\\(ga(.*?)\\\(ga`) })

// text writes words that are filled into lines. What is in backquotes is bold.
func (m *roff) text(words string) {
	words = escape(strings.Join(strings.Fields(words), " "))
	m.raw(`\&` + inQuotes().ReplaceAllString(words, `\fB$1\fP`))
}

func (m *roff) entries(title string, entries []Entry) {
	if len(entries) == 0 {
		return
	}
	m.macro("SH", title)
	for _, e := range entries {
		m.raw(".TP\n" + bold(e.Name))
		m.text(e.Text)
	}
}

func (m *roff) option(o *Option) {
	var names []string
	for _, name := range o.Names {
		names = append(names, bold(name))
	}
	tag, text := strings.Join(names, ", "), sentence(o.Text)
	if o.Value != "" {
		tag += ` \fI` + escape(o.Value) + `\fP`
	}
	if o.Default != "" {
		text += " Default: " + o.Default + "."
	}
	m.raw(".TP\n" + tag)
	m.text(text)
}

func bold(text string) string { return `\fB` + escape(text) + `\fP` }

// escape writes text so that groff prints it as it is, also at the beginning of a line and in the quoted
// argument of a macro. It would print some characters as others, such as a hyphen for -. What isn't ASCII
// is written by its number.
func escape(text string) string {
	var b strings.Builder
	for i, r := range text {
		special := strings.IndexRune("\\'`\"^~", r)
		switch {
		case special >= 0:
			b.WriteString(`\(` + "rsaqgadqhati"[2*special:2*special+2])
		case r == '-':
			b.WriteString(`\-`)
		case r == '…':
			b.WriteString("...")
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
