package command

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Place is what may follow on a command line that is being written.
type Place struct {
	Path      []*cli.Command // the commands that were given, the outermost first
	Commands  []*cli.Command // that may follow; none after an argument
	Arguments []string       // of the last command
	// Value is the flag that takes the next word; nil if none does. With More it has a
	// value already, so that other words may follow too.
	Value cli.DocGenerationFlag
	More  []string
	Ended bool // "--" was given: no flags follow
	// Program is which word begins the command line of `genv run` or `genv lock`; -1 if none
	// does. It may be the one after the last.
	Program int

	at    arrangement
	given []cli.DocGenerationFlag
}

// PlaceAfter reads the words of a command line up to a place, without the program's name.
// What is wrong in them is skipped.
func PlaceAfter(app *cli.App, words []string) *Place {
	p := &Place{Program: -1, at: arrangement{commands: app.Commands}}
	for at := 0; at < len(words); {
		at += p.step(words, at)
	}
	p.Path, p.Arguments = p.at.path, p.at.arguments
	if len(p.Arguments) == 0 && !p.Ended {
		p.Commands = p.at.commands
	}
	if p.Program < 0 && p.takesProgram() && p.Value == nil {
		p.Program = len(words)
	}
	return p
}

// step reads the next words, and says how many.
func (p *Place) step(words []string, at int) int {
	word := words[at]
	var flag cli.DocGenerationFlag
	if word != "--" && !p.takesAll() {
		if flag = p.Flag(word); flag != nil {
			p.given = append(p.given, flag)
		}
	}
	joined := strings.Contains(word, "=")
	taken, err := p.at.take(words[at:])
	switch {
	case err != nil: // an ambiguous flag
		return 1
	case word == "--" && !p.takesAll():
		p.Ended = true
		p.at.arguments = p.at.arguments[1:]
	case flag != nil && flag.TakesValue() && !joined && at+taken == len(words):
		if more := words[at+1:]; len(more) == 0 || takesMany(flag) {
			p.Value, p.More = flag, more
		}
	}
	if p.Program < 0 && p.takesProgram() && (p.Ended || len(p.at.arguments) > 0) {
		p.Program = at
		if word == "--" {
			p.Program++
		}
	}
	return taken
}

// takesAll says whether all that follows belongs to the command, as with `genv lock`.
func (p *Place) takesAll() bool { return p.at.command != nil && p.at.command.SkipFlagParsing }

func (p *Place) takesProgram() bool {
	return p.takesAll() || takesProgram(p.at.command)
}

// Flags are those that may follow: of the last command, and not those that were given
// already, unless they may be repeated.
func (p *Place) Flags() []cli.DocGenerationFlag {
	if p.Ended || p.takesAll() || p.Program >= 0 && len(p.Arguments) > 0 {
		return nil
	}
	var flags []cli.DocGenerationFlag
	for _, f := range append(p.at.flags()[1:], cli.HelpFlag) {
		documented, ok := f.(cli.DocGenerationFlag)
		if visible, hides := f.(cli.VisibleFlag); ok && (!hides || visible.IsVisible()) && !p.isUsed(documented) {
			flags = append(flags, documented)
		}
	}
	return flags
}

func (p *Place) isUsed(flag cli.DocGenerationFlag) bool {
	slice, ok := flag.(cli.DocGenerationSliceFlag)
	return !(ok && slice.IsSliceFlag()) && slices.ContainsFunc(p.given, func(g cli.DocGenerationFlag) bool {
		return g.Names()[0] == flag.Names()[0]
	})
}

// Flag is the flag of the last command that a word such as --format or --form names; nil
// if there is none.
func (p *Place) Flag(word string) cli.DocGenerationFlag {
	full, _, err := p.at.unabbreviated(word)
	if err != nil || !isFlag(word) {
		return nil
	}
	name, _, _ := strings.Cut(strings.TrimLeft(full, "-"), "=")
	return p.at.flag(name)
}

// Values are the values of a flag that were given, on all levels.
func (p *Place) Values(name string) []string {
	var values []string
	line := p.at.line
	for i, word := range line {
		flag, value, joined := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if !isFlag(word) || !slices.Contains(p.names(name), flag) {
			continue
		}
		if joined {
			values = append(values, value)
		} else if i+1 < len(line) {
			values = append(values, line[i+1])
		}
	}
	return values
}

// names are all names of a flag that was given; none if it wasn't.
func (p *Place) names(name string) []string {
	for _, flag := range p.given {
		if slices.Contains(flag.Names(), name) {
			return flag.Names()
		}
	}
	return nil
}
