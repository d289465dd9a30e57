package app

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

// Page is what is said about a command, by its help and its man page.
type Page struct {
	Name        string // with those of its parents: genv remote enforce
	Usage       string // in one line
	Synopsis    string // what follows the name
	Description []string
	Commands    []Entry
	Options     []Option
	Examples    []Entry
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
func PageOf(cmd *cli.Command, name string) Page {
	p := Page{Name: name, Usage: cmd.Usage}
	p.describe()
	for _, sub := range visible(cmd.Subcommands) {
		p.Commands = append(p.Commands, Entry{sub.Name, sub.Usage})
	}
	flags := cmd.VisibleFlags()
	if !slices.Contains(flags, cli.HelpFlag) {
		flags = append(flags, cli.HelpFlag)
	}
	for _, flag := range flags {
		if f, ok := flag.(cli.DocGenerationFlag); ok {
			p.Options = append(p.Options, optionOf(f))
		}
	}
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

// Root is the program itself as a command.
func Root(app *cli.App) *cli.Command {
	return &cli.Command{Name: app.Name, Usage: app.Usage, Subcommands: app.Commands, Flags: []cli.Flag{cli.VersionFlag}}
}

// visible are the commands that people are told of.
func visible(commands []*cli.Command) []*cli.Command {
	return slices.DeleteFunc(slices.Clone(commands), func(cmd *cli.Command) bool { return cmd.Hidden })
}

func optionOf(flag cli.DocGenerationFlag) Option {
	o := Option{Text: flag.GetUsage(), Default: strings.Trim(flag.GetDefaultText(), `"`)}
	if f, ok := flag.(*cli.BoolFlag); ok {
		o.Default = f.DefaultText // "false" is no help
	}
	for _, name := range flag.Names() {
		o.Names = append(o.Names, "--"[:min(len(name), 2)]+name)
	}
	if flag.TakesValue() {
		o.Value = command.Placeholder(flag)
		o.Text = strings.Replace(o.Text, "`"+o.Value+"`", o.Value, 1)
	}
	return o
}

// entry is the row of an option in the help.
func (o *Option) entry() Entry {
	e := Entry{strings.TrimSpace(strings.Join(o.Names, ", ") + " " + o.Value), o.Text}
	if o.Default != "" {
		e.Text += fmt.Sprintf(" (default: %s)", o.Default)
	}
	return e
}

// texts are descriptions and examples: a command after ==, its paragraphs, and examples as
// a command line after $ with a line that explains it.
//
//go:embed texts.txt
var texts string

// describe adds the texts about the command.
func (p *Page) describe() {
	_, section, _ := strings.Cut("\n"+texts, "\n== "+p.Name+"\n")
	section, _, _ = strings.Cut(section, "\n== ")
	lines := strings.Split(section, "\n")
	for i, line := range lines {
		example, isExample := strings.CutPrefix(line, "$ ")
		switch {
		case isExample:
			p.Examples = append(p.Examples, Entry{example, lines[i+1]})
		case line != "" && (i == 0 || !strings.HasPrefix(lines[i-1], "$ ")):
			p.Description = append(p.Description, line)
		}
	}
}
