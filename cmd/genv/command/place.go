package command

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// place is what may follow on a command line that is being written.
type place struct {
	arrangement
	// value is the flag that takes the next word; nil if none does. With more it has a value already, so that other
	// words may follow too.
	value cli.DocGenerationFlag
	more  []string
	ended bool // "--" was given: no flags follow
	// program is which word begins the command line of `genv run` or `genv lock`; -1 if none does. It may be the one
	// after the last.
	program int
}

// placeAfter reads the words of a command line up to a place, without the program's name. What is wrong in them is
// skipped.
func placeAfter(app *cli.App, words []string) *place {
	p := &place{program: -1, arrangement: newArrangement(app)}
	for at := 0; at < len(words); {
		at += p.step(words, at)
	}
	if len(p.arguments) > 0 || p.ended {
		p.commands = nil
	}
	if p.program < 0 && p.takesProgram() && p.value == nil {
		p.program = len(words)
	}
	return p
}

// step reads the next words, and says how many.
func (p *place) step(words []string, at int) int {
	word := words[at]
	ends := word == "--" && !p.takesAll()
	var flag cli.DocGenerationFlag
	if !ends && !p.takesAll() {
		flag = p.flagOf(word)
	}
	taken, err := p.take(words[at:])
	switch {
	case err != nil: // an ambiguous flag
		return 1
	case ends:
		p.ended = true
		p.arguments = p.arguments[1:]
	case flag != nil && flag.TakesValue() && !strings.Contains(word, "=") && at+taken == len(words):
		if more := words[at+1:]; len(more) == 0 || takesMany(flag) {
			p.value, p.more = flag, more
		}
	}
	if p.program < 0 && p.takesProgram() && (p.ended || len(p.arguments) > 0) {
		p.program = at
		if word == "--" {
			p.program++
		}
	}
	return taken
}

// takesAll says whether all that follows belongs to the command, as with `genv lock`.
func (p *place) takesAll() bool { return p.command != nil && p.command.SkipFlagParsing }

func (p *place) takesProgram() bool { return p.takesAll() || takesProgram(p.command) }

// offered are the flags that may follow: of the last command, and not those that were given already, unless they
// may be repeated.
func (p *place) offered() (flags []cli.DocGenerationFlag) {
	if p.ended || p.takesAll() || p.program >= 0 && len(p.arguments) > 0 {
		return nil
	}
	for _, flag := range append(p.flags()[1:], cli.HelpFlag) {
		visible, hides := flag.(cli.VisibleFlag)
		documented, ok := flag.(cli.DocGenerationFlag)
		if ok && (!hides || visible.IsVisible()) && !p.isUsed(flag) {
			flags = append(flags, documented)
		}
	}
	return flags
}

func (p *place) isUsed(flag cli.Flag) bool {
	f, ours := flag.(*Flag)
	return !(ours && f.isList) && slices.ContainsFunc(slices.Concat(p.given...), func(g givenFlag) bool {
		return slices.Contains(namesOf(flag), g.name)
	})
}

// flagOf is the flag of the last command that a word such as --format or --form names; nil if there is none.
func (p *place) flagOf(word string) cli.DocGenerationFlag {
	full, _, err := p.unabbreviated(word)
	if err != nil || !isFlag(word) {
		return nil
	}
	name, _, _ := strings.Cut(strings.TrimLeft(full, "-"), "=")
	return p.flag(name)
}
