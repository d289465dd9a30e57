package command

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/render"
)

const margin = 3 // of --help

// printHelp is a cli.HelpPrinter. It ignores errors, as of a closed pipe.
func printHelp(w io.Writer, _ string, of any) {
	if app, ok := of.(*cli.App); ok {
		of = Root(app)
	}
	if cmd, ok := of.(*cli.Command); ok {
		page := PageOf(cmd, cmp.Or(cmd.HelpName, cmd.Name))
		_ = WriteHelp(w, &page, render.Width(w))
	}
}

// WriteHelp writes a page as --help prints it, wrapped to the width of the terminal unless that is 0.
func WriteHelp(w io.Writer, p *HelpPage, width int) error {
	h := helpText{width: min(width, 120)} // longer lines are hard to read
	h.section("NAME", p.Name+" - "+p.Usage)
	p.write(&h)
	_, err := io.WriteString(w, strings.TrimPrefix(h.String(), "\n"))
	return err
}

func (p *HelpPage) write(h *helpText) {
	h.section("USAGE", strings.TrimSpace(p.Name+" "+p.Synopsis))
	if len(p.Description) > 0 {
		h.section("DESCRIPTION", strings.Split(strings.Join(p.Description, "\n\n"), "\n")...)
	}
	for _, section := range slices.Concat(p.Commands, p.Options) {
		h.columns(section.Title, section.Rows)
	}
	h.columns("EXAMPLES", p.Examples)
}

type helpText struct {
	strings.Builder
	width int // 0 if unknown
}

func (h *helpText) section(title string, lines ...string) {
	h.WriteString("\n" + title + ":\n")
	for _, line := range lines {
		if !strings.HasPrefix(line, " ") { // else it is already laid out
			line = render.Wrap(line, margin, h.width)
		}
		h.line(line)
	}
}

func (h *helpText) line(line string) {
	h.WriteString(strings.TrimRight(strings.Repeat(" ", margin)+line, " ") + "\n")
}

func (h *helpText) columns(title string, rows []Explained) {
	if len(rows) == 0 {
		return
	}
	const (
		gap        = 2
		textIndent = 10 // for a text below its name
		leastRoom  = 30 // for a text next to its name
	)
	names, texts := 0, 0
	for _, row := range rows {
		names = max(names, utf8.RuneCountInString(row.Name))
		texts = max(texts, utf8.RuneCountInString(row.Text))
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
		space := strings.Repeat(" ", names-utf8.RuneCountInString(row.Name)+gap)
		h.line(row.Name + space + render.Wrap(row.Text, indent, h.width))
	}
}

// HelpPage is the help of a command, and its man page.
type HelpPage struct {
	Name        string // in full: genv remote enforce
	Usage       string // in one line
	Synopsis    string // what follows the name
	Description []string
	Commands    []HelpSection
	Options     []HelpSection
	Examples    []Explained

	groups [][]string // a title, then names of commands or flags
}

// HelpSection is a group of the commands or options of a page.
type HelpSection struct {
	Title string
	Rows  []Explained
}

// Explained is a word, a flag with its value or a command line, with its explanation.
type Explained struct{ Name, Text string }

// PageOf describes a command by its full name.
func PageOf(cmd *cli.Command, name string) HelpPage {
	p := HelpPage{Name: name, Usage: cmd.Usage}
	p.describe()
	var others []Explained // for programs
	if p.Commands, others = p.grouped(explained(cmd.Subcommands)); p.Commands == nil && others != nil {
		p.Commands = []HelpSection{{"COMMANDS", others}}
	}
	p.Options, others = p.grouped(p.optionsOf(cmd))
	p.Options = append(p.Options, HelpSection{"OPTIONS", others})
	p.Synopsis = cmd.ArgsUsage
	if len(p.Commands) > 0 {
		p.Synopsis = "COMMAND"
	}
	if !cmd.SkipFlagParsing {
		p.Synopsis = strings.TrimSpace("[options] " + p.Synopsis)
	}
	return p
}

// grouped returns entries of no group as rest.
func (p *HelpPage) grouped(all []Explained) (found []HelpSection, rest []Explained) {
	rest = all
	for _, group := range p.groups {
		s := HelpSection{Title: group[0]}
		for _, member := range group[1:] {
			is := func(e Explained) bool { return strings.FieldsFunc(e.Name, endsName)[0] == member }
			if at := slices.IndexFunc(rest, is); at >= 0 {
				s.Rows, rest = append(s.Rows, rest[at]), slices.Delete(rest, at, at+1)
			}
		}
		if s.Rows != nil {
			found = append(found, s)
		}
	}
	return found, rest
}

func endsName(r rune) bool { return r == ' ' || r == ',' || r == '[' }

func (p *HelpPage) optionsOf(cmd *cli.Command) (options []Explained) {
	others := false
	for _, flag := range append(own(cmd.Flags), helpFlag) {
		switch {
		case flag.hidden:
		case flag.keys&connection != 0 && cmd.Name != connectionTopic:
			others = true
		default:
			options = append(options, optionOf(flag))
		}
	}
	if others {
		p.Description = append(p.Description, "How hosts are reached, and what happens if one fails: `genv help "+
			connectionTopic+"` lists these flags, such as --username and --timeout.")
	}
	return options
}

// Root is the program itself as a command.
func Root(app *cli.App) *cli.Command {
	return &cli.Command{Name: app.Name, Usage: app.Usage, Subcommands: app.Commands, Flags: []cli.Flag{versionFlag}}
}

func visible(commands []*cli.Command) []*cli.Command {
	return slices.DeleteFunc(slices.Clone(commands), func(cmd *cli.Command) bool { return cmd.Hidden })
}

func explained(commands []*cli.Command) (list []Explained) {
	for _, cmd := range visible(commands) {
		list = append(list, Explained{cmd.Name, cmd.Usage})
	}
	return list
}

func optionOf(f *Flag) Explained {
	var names []string
	for _, name := range f.names {
		names = append(names, dashed(name))
	}
	option := Explained{strings.Join(names, ", "), f.plainUsage()}
	if !f.isBool {
		option.Name += " " + f.placeholder()
	}
	if f.word != "" {
		option.Name += "[=" + f.word + "]"
	}
	if preset := cmp.Or(f.defaultText, f.preset); preset != "" {
		option.Text += fmt.Sprintf(" (default: %s)", preset)
	}
	return option
}

func dashed(name string) string { return "--"[:min(utf8.RuneCountInString(name), 2)] + name }

func (f *Flag) plainUsage() string {
	if value := f.placeholder(); !f.isBool {
		return strings.Replace(f.usage, "`"+value+"`", value, 1)
	}
	return f.usage
}

// texts are descriptions and examples: a command after ==, its paragraphs, groups of its commands or flags after +
// (other commands are not listed), and examples as a command line after $ and a line that explains it.
//
//go:embed texts.txt
var texts string

func (p *HelpPage) describe() {
	_, section, _ := strings.Cut("\n"+texts, "\n== "+p.Name+"\n")
	section, _, _ = strings.Cut(section, "\n== ")
	lines := strings.Split(section, "\n")
	for i, line := range lines {
		example, isExample := strings.CutPrefix(line, "$ ")
		switch {
		case strings.HasPrefix(line, "+ "):
			title, members, _ := strings.Cut(line[2:], ": ")
			p.groups = append(p.groups, append([]string{strings.ToUpper(title)}, strings.Fields(members)...))
		case isExample:
			p.Examples = append(p.Examples, Explained{example, lines[i+1]})
		case line != "" && (i == 0 || !strings.HasPrefix(lines[i-1], "$ ")):
			p.Description = append(p.Description, line)
		}
	}
}

// facts are exit codes, variables and files, after the commands on whose pages they are; without any they are on all.
// docs/daily-work.md has the same exit codes.
//
//go:embed facts.txt
var facts string

// factsOf are the entries for the second or last word of the page's name; all on genv's own page.
func (p *HelpPage) factsOf(kind string) (entries []Explained) {
	_, section, _ := strings.Cut(facts, "== "+kind+"\n")
	section, _, _ = strings.Cut(section, "\n\n")
	words := strings.Fields(p.Name)
	for line := range strings.Lines(section) {
		fact := strings.SplitN(strings.TrimSpace(line), ": ", 3)
		of := strings.Fields(fact[0])
		named := func(word string) bool { return slices.Contains(of, word) }
		if len(words) == 1 || len(of) == 0 || named(words[1]) || named(words[len(words)-1]) {
			entries = append(entries, Explained{fact[1], fact[2]})
		}
	}
	return entries
}

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

// FileName is the man page's, without the section.
func (p *HelpPage) FileName() string { return strings.ReplaceAll(p.Name, " ", "-") }

// Man is the page in the language of man(7): --help plus exit codes, variables, files and related pages.
func (p *HelpPage) Man(version string) string {
	h := helpText{width: 70 + margin} // what man(7) leaves of 80 columns
	p.write(&h)
	status := p.factsOf("EXIT STATUS")
	if p.Name == "genv run" || p.Name == "genv lock" {
		status = []Explained{
			{"0 to 255", "that of the command"}, {"1", "genv failed, and says why; nothing was changed"},
		}
	}
	h.columns("EXIT STATUS", status)
	h.columns("ENVIRONMENT", p.factsOf("ENVIRONMENT"))
	h.columns("FILES", p.factsOf("FILES"))
	if pages := p.seeAlso(); len(pages) > 0 {
		h.section("SEE ALSO", strings.Join(pages, ", "))
	}
	var m strings.Builder
	fmt.Fprintf(&m, ".TH \"%s\" 1 \"\" \"%s\" \"genv manual\"\n.nh\n.ad l\n",
		escape(strings.ToUpper(p.FileName())), escape("genv "+version))
	usage := strings.ReplaceAll(p.Usage, "`", "") // for whatis(1)
	fmt.Fprintf(&m, ".SH NAME\n%s \\- %s\n", escape(p.FileName()), escape(usage))
	blank := ""
	for line := range strings.Lines(h.String()) {
		switch title, isTitle := strings.CutSuffix(line, ":\n"); {
		case line == "\n": // man(7) itself adds it between sections
			blank = line
			continue
		case isTitle && line[0] != ' ':
			fmt.Fprintf(&m, ".fi\n.SH \"%s\"\n.nf\n", escape(strings.Replace(title, "USAGE", "SYNOPSIS", 1)))
		default: // already laid out
			line = strings.TrimPrefix(strings.TrimSuffix(line, "\n"), strings.Repeat(" ", margin))
			m.WriteString(blank + escape(line) + "\n")
		}
		blank = ""
	}
	return m.String()
}

func (p *HelpPage) seeAlso() (pages []string) {
	if end := strings.LastIndexByte(p.Name, ' '); end > 0 {
		pages = append(pages, p.Name[:end])
	}
	for _, section := range p.Commands {
		for _, c := range section.Rows {
			pages = append(pages, p.Name+" "+c.Name)
		}
	}
	for i, page := range pages {
		pages[i] = strings.ReplaceAll(page, " ", "-") + "(1)"
	}
	return pages
}

// escape makes groff print a line unchanged, also as a macro's quoted argument: it prints - as a hyphen, for example.
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
		case r < ' ' || r == 0x7f: // not printable
		case r > '~':
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
