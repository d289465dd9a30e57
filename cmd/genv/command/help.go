package command

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
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

// WriteHelp writes a page as --help prints it: wrapped to the width of the terminal, or not at all if that is 0.
func WriteHelp(w io.Writer, p *HelpPage, width int) error {
	h := helpText{width: min(width, mostWidth)}
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
	for _, group := range p.Commands {
		h.columns(group.Title, group.Of)
	}
	for _, group := range p.Options {
		var options []Entry
		for i := range group.Of {
			options = append(options, group.Of[i].entry())
		}
		h.columns(group.Title, options)
	}
	h.columns("EXAMPLES", p.Examples)
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

// columns writes rows of two columns. Where the second has too little room, each text is on lines of its own.
func (h *helpText) columns(title string, rows []Entry) {
	if len(rows) == 0 {
		return
	}
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

// HelpPage is what is said about a command, by its help and its man page.
type HelpPage struct {
	Name        string // with those of its parents: genv remote enforce
	Usage       string // in one line
	Synopsis    string // what follows the name
	Description []string
	Commands    []Group[Entry]
	Options     []Group[Option]
	Examples    []Entry

	groups [][]string // the title of each, and the names of its commands or flags
}

// Group is a part of the commands or options of a page.
type Group[T any] struct {
	Title string
	Of    []T
}

// Entry is a word or a command line, with its explanation.
type Entry struct{ Name, Text string }

// Option is a flag of a command.
type Option struct {
	Names   []string // with their dashes
	Value   string   // the placeholder; empty if the flag takes none
	Text    string
	Default string // what it means if it isn't given; empty if that goes without saying
}

// PageOf describes a command by its full name.
func PageOf(cmd *cli.Command, name string) HelpPage {
	p := HelpPage{Name: name, Usage: cmd.Usage}
	p.describe()
	var commands []Entry
	for _, sub := range visible(cmd.Subcommands) {
		commands = append(commands, Entry{sub.Name, sub.Usage})
	}
	var rest []Entry // what programs call
	p.Commands, rest = grouped(p.groups, commands, func(e Entry) string { return e.Name })
	if p.Commands == nil && rest != nil {
		p.Commands = []Group[Entry]{{"COMMANDS", rest}}
	}
	var others []Option
	p.Options, others = grouped(p.groups, p.optionsOf(cmd), func(o Option) string { return o.Names[0] })
	p.Options = append(p.Options, Group[Option]{"OPTIONS", others})
	what := cmd.ArgsUsage
	if len(p.Commands) > 0 {
		what = "COMMAND"
	}
	if !cmd.SkipFlagParsing {
		what = strings.TrimSpace("[options] " + what)
	}
	p.Synopsis = what
	return p
}

// grouped puts what is named in groups into those, in their order; rest is what isn't.
func grouped[T any](groups [][]string, all []T, name func(T) string) (found []Group[T], rest []T) {
	rest = slices.Clone(all)
	for _, group := range groups {
		g := Group[T]{Title: group[0]}
		for _, member := range group[1:] {
			at := slices.IndexFunc(rest, func(one T) bool { return name(one) == member })
			if at >= 0 {
				g.Of, rest = append(g.Of, rest[at]), slices.Delete(rest, at, at+1)
			}
		}
		if g.Of != nil {
			found = append(found, g)
		}
	}
	return found, rest
}

// optionsOf are the options of a command's page. The flags about connections, which many commands
// have, are on a page of their own.
func (p *HelpPage) optionsOf(cmd *cli.Command) (options []Option) {
	flags, others := cmd.VisibleFlags(), false
	if !slices.Contains(flags, cli.HelpFlag) {
		flags = append(flags, cli.HelpFlag)
	}
	for _, flag := range flags {
		if Has(flag, connection) && cmd.Name != connectionTopic {
			others = true
		} else if f, ok := flag.(cli.DocGenerationFlag); ok {
			options = append(options, optionOf(f))
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
	return &cli.Command{Name: app.Name, Usage: app.Usage, Subcommands: app.Commands, Flags: []cli.Flag{cli.VersionFlag}}
}

// visible are the commands that people are told of.
func visible(commands []*cli.Command) []*cli.Command {
	return slices.DeleteFunc(slices.Clone(commands), func(cmd *cli.Command) bool { return cmd.Hidden })
}

func optionOf(flag cli.DocGenerationFlag) Option {
	o := Option{Text: flag.GetUsage()}
	if f, ours := flag.(*Flag); ours {
		o.Default = f.GetDefaultText()
		if f.word != "" {
			o.Value = "[=" + f.word + "]"
		}
	}
	for _, name := range namesOf(flag) {
		o.Names = append(o.Names, "--"[:min(len(name), 2)]+name)
	}
	if flag.TakesValue() {
		o.Value = Placeholder(flag)
		o.Text = strings.Replace(o.Text, "`"+o.Value+"`", o.Value, 1)
	}
	return o
}

func (o *Option) entry() Entry {
	value := o.Value
	if value != "" && !strings.HasPrefix(value, "[=") {
		value = " " + value
	}
	e := Entry{strings.Join(o.Names, ", ") + value, o.Text}
	if o.Default != "" {
		e.Text += fmt.Sprintf(" (default: %s)", o.Default)
	}
	return e
}

// texts are descriptions and examples: a command after ==, its paragraphs, groups of its commands or flags after + (its
// other commands are not listed), and examples as a command line after $ with a line that explains it.
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
			p.Examples = append(p.Examples, Entry{example, lines[i+1]})
		case line != "" && (i == 0 || !strings.HasPrefix(lines[i-1], "$ ")):
			p.Description = append(p.Description, line)
		}
	}
}

// facts are exit codes, variables and files with the commands on whose pages they are; those
// without commands are on all pages. docs/daily-work.md has the same exit codes.
//
//go:embed facts.txt
var facts string

// factsOf are the entries of a kind for this page: those of its second or last word. The page of genv itself has all.
func (p *HelpPage) factsOf(kind string) (entries []Entry) {
	_, section, _ := strings.Cut(facts, "== "+kind+"\n")
	section, _, _ = strings.Cut(section, "\n\n")
	words := strings.Fields(p.Name)
	for line := range strings.Lines(section) {
		fact := strings.SplitN(strings.TrimSpace(line), ": ", 3)
		of := strings.Fields(fact[0])
		named := func(word string) bool { return slices.Contains(of, word) }
		if len(words) == 1 || len(of) == 0 || named(words[1]) || named(words[len(words)-1]) {
			entries = append(entries, Entry{fact[1], fact[2]})
		}
	}
	return entries
}

func (p *HelpPage) exitStatus() []Entry {
	if p.Name == "genv run" || p.Name == "genv lock" {
		return []Entry{{"0 to 255", "that of the command"}, {"1", "genv failed, and says why; nothing was changed"}}
	}
	return p.factsOf("EXIT STATUS")
}
