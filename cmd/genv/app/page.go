package app

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

// Page is what is said about a command.
type Page struct {
	Name        string // with those of its parents: genv remote enforce
	Usage       string // in one line
	Synopsis    []string
	Description []string // paragraphs
	Commands    []Entry
	Options     []Option
	Examples    []Example
}

// Entry is a word with its explanation.
type Entry struct{ Name, Text string }

// Option is a flag of a command.
type Option struct {
	Names   []string // with their dashes
	Value   string   // the placeholder; empty if the flag takes none
	Text    string
	Default string
}

// Example is a command line, and what it does.
type Example struct{ Line, Text string }

// PageOf describes a command by its full name.
func PageOf(cmd *cli.Command, name string) Page {
	about := describe(name)
	p := Page{
		Name: name, Usage: cmd.Usage, Description: about.description, Examples: about.examples,
		Options: optionsOf(cmd),
	}
	if cmd.Description != "" {
		p.Description = strings.Split(strings.TrimSpace(cmd.Description), "\n\n")
	}
	for _, sub := range cmd.Subcommands {
		if !sub.Hidden {
			p.Commands = append(p.Commands, Entry{sub.Name, sub.Usage})
		}
	}
	p.Synopsis = synopsisOf(cmd, &p)
	return p
}

func synopsisOf(cmd *cli.Command, p *Page) []string {
	if cmd.UsageText != "" {
		return strings.Split(strings.TrimSpace(cmd.UsageText), "\n")
	}
	words := []string{p.Name}
	if !cmd.SkipFlagParsing {
		words = append(words, "[options]")
	}
	if len(p.Commands) > 0 {
		words = append(words, "COMMAND")
	} else if cmd.ArgsUsage != "" {
		words = append(words, cmd.ArgsUsage)
	}
	return []string{strings.Join(words, " ")}
}

// optionsOf are the flags that people may use, with --helpText.
func optionsOf(cmd *cli.Command) []Option {
	var options []Option
	flags := cmd.VisibleFlags()
	if !slices.Contains(flags, cli.HelpFlag) {
		flags = append(flags, cli.HelpFlag)
	}
	for _, flag := range flags {
		if f, ok := flag.(cli.DocGenerationFlag); ok {
			options = append(options, OptionOf(f))
		}
	}
	return options
}

// OptionOf describes a flag.
func OptionOf(flag cli.DocGenerationFlag) Option {
	o := Option{Text: flag.GetUsage(), Default: DefaultOf(flag)}
	for _, name := range flag.Names() {
		if len(name) == 1 {
			o.Names = append(o.Names, "-"+name)
		} else {
			o.Names = append(o.Names, "--"+name)
		}
	}
	if flag.TakesValue() {
		o.Value = command.Placeholder(flag)
		o.Text = strings.Replace(o.Text, "`"+o.Value+"`", o.Value, 1)
	}
	return o
}

// DefaultOf is what a flag means if it isn't given; empty if that goes without saying.
func DefaultOf(flag cli.DocGenerationFlag) string {
	if f, ok := flag.(*cli.BoolFlag); ok {
		return f.DefaultText // "false" is no helpText
	}
	return strings.Trim(flag.GetDefaultText(), `"`)
}
