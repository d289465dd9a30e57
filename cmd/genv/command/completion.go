package command

import (
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot/text"
)

//go:embed genv.bash genv.fish genv.zsh
var scripts embed.FS

func completionCommand(p Program) *cli.Command {
	return &cli.Command{
		Name: "completion", ArgsUsage: "bash|zsh|fish",
		Usage: "print the script that completes command lines of genv in a shell",
		Action: func(c *cli.Context) error {
			script, err := scripts.ReadFile("genv." + c.Args().First())
			if err != nil || c.NArg() != 1 {
				return UsageError("missing shell: write `genv completion bash`, zsh or fish")
			}
			_, err = p.Out.Write(script)
			return err
		},
	}
}

// completeCommand gets the words up to the cursor, without genv. The last one may be empty.
func completeCommand(p Program, root func() *cli.App) *cli.Command {
	return &cli.Command{
		Name: "__complete", Usage: "print completions for a shell's script", ArgsUsage: "WORD…",
		Hidden: true, SkipFlagParsing: true,
		Action: func(c *cli.Context) error {
			last := c.NArg() - 1
			if last < 0 {
				return UsageError("missing words: the scripts of `genv completion` write them")
			}
			_, err := io.WriteString(p.Out, complete(root(), c.Args().Slice()[:last], c.Args().Get(last)).String())
			return err
		},
	}
}

const (
	offer   = "words"   // the candidates
	files   = "files"   // the word, or its part after "=", is the path of a file
	folders = "folders" // the same for a folder
	program = "program" // a command line begins at the word with this index
)

type continuation struct {
	do         string // empty for nothing
	program    int
	candidates []Explained
}

// String is for the scripts: the action, then a line for each candidate with its explanation behind a tab.
func (a continuation) String() string {
	var b strings.Builder
	b.WriteString(a.do)
	if a.do == program {
		fmt.Fprintf(&b, " %d", a.program+1) // counts genv itself
	}
	b.WriteString("\n")
	for _, c := range a.candidates {
		b.WriteString(c.Name + "\t" + text.OneLine(c.Text) + "\n")
	}
	return b.String()
}

// complete offers only values that are the same on every machine.
func complete(app *cli.App, words []string, current string) continuation {
	p := placeAfter(app, words)
	if n := len(p.path); n > 0 && p.path[n-1].Name == "help" {
		topics := explained(p.commands)
		return matching(append(topics, explained(placeAfter(app, p.arguments).commands)...), current, 0)
	}
	isFlag := strings.HasPrefix(current, "-") && !p.ended
	switch {
	case p.program >= 0 && (p.program < len(words) || !isFlag || len(p.offered()) == 0):
		return continuation{do: program, program: p.program}
	case p.value != nil && !(isFlag && len(p.more) > 0):
		return p.valueOf(p.value, current, 0)
	case isFlag:
		if at := strings.IndexByte(current, '='); at > 0 {
			flag := p.flagOf(current[:at])
			switch {
			case flag == nil:
				return continuation{}
			case !flag.isBool:
				return p.valueOf(flag, current, at+1)
			case flag.word != "":
				return matching(valuesOf(flag.choices), current, at+1)
			}
			return continuation{}
		}
		return matching(p.flagNames(current), current, 0)
	case len(p.commands) > 0:
		return matching(explained(p.commands), current, 0)
	case len(p.path) == 0:
		return continuation{}
	}
	return p.argument(current)
}

func (p *place) argument(current string) continuation {
	kinds := strings.Fields(p.command.ArgsUsage)
	switch at := len(p.arguments); {
	case at < len(kinds):
		return ofKind(strings.Trim(kinds[at], "[]…"), current, 0)
	case len(kinds) == 0 && !p.ended:
		return matching(p.flagNames(current), current, 0)
	}
	return continuation{}
}

func (p *place) valueOf(flag *Flag, current string, skip int) continuation {
	if flag.choices != nil {
		return matching(valuesOf(flag.choices, p.more...), current, skip)
	}
	return ofKind(flag.placeholder(), current, skip)
}

func ofKind(kind, current string, skip int) continuation {
	switch {
	case kind == "FILE", kind == "PATH", kind == "HOSTS": // HOSTS may be a hosts.yaml
		return continuation{do: files}
	case kind == "DIR", kind == "FOLDER":
		return continuation{do: folders}
	case strings.Contains(kind, "|"):
		return matching(valuesOf(strings.Split(kind, "|")), current, skip)
	}
	return continuation{}
}

func matching(candidates []Explained, word string, skip int) continuation {
	a := continuation{do: offer}
	for _, c := range candidates {
		if strings.HasPrefix(c.Name, word[skip:]) {
			a.candidates = append(a.candidates, Explained{word[:skip] + c.Name, c.Text})
		}
	}
	return a
}

func valuesOf(values []string, without ...string) (candidates []Explained) {
	for _, value := range values {
		if !slices.Contains(without, value) {
			candidates = append(candidates, Explained{Name: value})
		}
	}
	return candidates
}

func (p *place) flagNames(word string) (candidates []Explained) {
	for _, flag := range p.offered() {
		begins := func(name string) bool { return strings.HasPrefix(dashed(name), word) }
		if at := slices.IndexFunc(flag.names, begins); at >= 0 {
			candidates = append(candidates, Explained{dashed(flag.names[at]), flag.plainUsage()})
		}
	}
	return candidates
}

type place struct {
	arrangement
	// value is the flag that takes the next word; nil for none. If more is set, it already has a value, and other words
	// may follow.
	value *Flag
	more  []string
	ended bool // by "--": no flags follow
	// program is the index of the word, possibly the next one, that begins the command line of `genv run` or `genv
	// lock`; -1 for none.
	program int
}

// placeAfter skips errors in the words, which don't include genv.
func placeAfter(app *cli.App, words []string) *place {
	p := &place{program: -1, arrangement: arrangement{commands: app.Commands, given: make([][]givenFlag, 1)}}
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

func (p *place) step(words []string, at int) int {
	word := words[at]
	ends := word == "--" && !p.takesAll()
	var flag *Flag
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
	case flag != nil && !flag.isBool && !strings.Contains(word, "=") && at+taken == len(words):
		if more := words[at+1:]; len(more) == 0 || flag.many {
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

func (p *place) takesAll() bool { return p.command != nil && p.command.SkipFlagParsing }

func (p *place) takesProgram() bool { return p.takesAll() || takesProgram(p.command) }

func (p *place) offered() (flags []*Flag) {
	if p.ended || p.takesAll() || p.program >= 0 && len(p.arguments) > 0 {
		return nil
	}
	for _, flag := range append(p.flags()[1:], helpFlag) {
		isUsed := !flag.isList && slices.ContainsFunc(slices.Concat(p.given...), func(g givenFlag) bool {
			return slices.Contains(flag.names, g.name)
		})
		if !flag.hidden && !isUsed {
			flags = append(flags, flag)
		}
	}
	return flags
}

func (p *place) flagOf(word string) *Flag {
	full, _, err := p.unabbreviated(word)
	if err != nil || !isFlag(word) {
		return nil
	}
	name, _, _ := strings.Cut(strings.TrimLeft(full, "-"), "=")
	return p.flag(name)
}
