package command

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Arrange rewrites a command line so that package cli reads it as 1.4.3, which uses Python's argparse, does:
//
//   - a long flag may be cut short, as in `--over`, if one flag of the command begins so, or 1.4.3 has only one;
//   - `--query a b` becomes `--query a --query b`;
//   - flags may follow the arguments of a command;
//   - `genv remote -H a enforce` becomes `genv remote enforce -H a`, if enforce has the flag, too.
//
// The words after `--`, and the command lines of `genv lock` and `genv run`, stay unchanged.
func Arrange(app *cli.App, args []string) ([]string, error) {
	a := arrangement{commands: app.Commands, given: make([][]givenFlag, 1)}
	for rest := args[1:]; len(rest) > 0; {
		taken, err := a.take(rest)
		if err != nil {
			return nil, err
		}
		rest = rest[taken:]
	}
	return append(append(args[:1:1], a.line()...), a.arguments...), nil
}

type arrangement struct {
	path      []*cli.Command // from the first command to the last
	command   *cli.Command   // the last of path; nil for none
	commands  []*cli.Command // its subcommands
	given     [][]givenFlag  // to genv itself, then to each command of path
	arguments []string       // of the last command
}

type givenFlag struct {
	name  string
	words []string
}

func (a *arrangement) line() (line []string) {
	var moved []string
	for level, flags := range a.given {
		last := level == len(a.path)
		if level > 0 {
			line = append(line, a.path[level-1].Name)
		}
		if last {
			line = append(line, moved...)
		}
		for _, f := range flags {
			if !last && Takes(a.command, f.name) {
				moved = append(moved, f.words...)
			} else {
				line = append(line, f.words...)
			}
		}
	}
	return line
}

// take returns the number of words that it took.
func (a *arrangement) take(words []string) (int, error) {
	word := words[0]
	sub := commandNamed(a.commands, word)
	switch {
	case a.command != nil && a.command.SkipFlagParsing:
		a.arguments = words
		return len(words), nil
	case word == "--":
		a.arguments = append(append([]string{"--"}, a.arguments...), words[1:]...)
		return len(words), nil
	case isFlag(word):
		return a.takeFlag(words)
	case len(a.arguments) == 0 && sub != nil:
		a.command, a.commands = sub, sub.Subcommands
		a.path, a.given = append(a.path, a.command), append(a.given, nil)
		return 1, nil
	case takesProgram(a.command): // the rest is the program's command line
		a.arguments = append(a.arguments, words...)
		return len(words), nil
	}
	a.arguments = append(a.arguments, word)
	return 1, nil
}

func isFlag(word string) bool {
	return len(word) > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9') // -1 is a number
}

func (a *arrangement) takeFlag(words []string) (int, error) {
	word, joined, err := a.unabbreviated(words[0])
	if err != nil {
		return 0, err
	}
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	give := func(words ...string) {
		last := len(a.path)
		a.given[last] = append(a.given[last], givenFlag{name, words})
	}
	flag, values := a.flag(name), words[1:]
	switch {
	case joined || flag == nil || flag.isBool: // the parser reports unknown flags
		values = nil
	case !flag.many:
		values = values[:min(1, len(values))]
	default:
		if end := slices.IndexFunc(values, isFlag); end >= 0 {
			values = values[:end]
		}
		for _, value := range values {
			give(word, value)
		}
		if len(values) > 0 { // otherwise the parser reports it
			return 1 + len(values), nil
		}
	}
	give(append([]string{word}, values...)...)
	return 1 + len(values), nil
}

func (a *arrangement) flags() []*Flag {
	if a.command == nil {
		return []*Flag{helpFlag, versionFlag}
	}
	return append([]*Flag{helpFlag}, own(a.command.Flags)...)
}

func takesProgram(cmd *cli.Command) bool {
	return cmd != nil && strings.HasPrefix(cmd.ArgsUsage, "COMMAND ")
}

func (a *arrangement) flag(name string) *Flag { return flagNamed(a.flags(), name) }

// unabbreviated completes a shortened long flag; joined reports whether "=" and a value follow.
func (a *arrangement) unabbreviated(word string) (flag string, joined bool, err error) {
	flag, value, joined := strings.Cut(word, "=")
	prefix, long := strings.CutPrefix(flag, "--")
	exact := a.flag(prefix) != nil
	if !long || exact && len(prefix) > 1 {
		return word, joined, nil
	}
	found := a.beginningWith(prefix)
	if len(found) > 1 {
		name := "genv"
		for _, c := range a.path {
			name += " " + c.Name
		}
		isMeant := func(flag string) bool { return slices.Contains(strings.Fields(shortIn143[name]), flag) }
		if i := slices.IndexFunc(found, isMeant); i >= 0 {
			found = found[i : i+1]
		}
	}
	switch {
	case len(found) == 0 || exact && len(found) > 1: // --t is -t, unless it is the beginning of one flag
		return word, joined, nil
	case len(found) > 1:
		return "", false, UsageError("%s is ambiguous: write --%s", flag, strings.Join(found, " or --"))
	case joined:
		return "--" + found[0] + "=" + value, true, nil
	}
	return "--" + found[0], false, nil
}

// shortIn143 are flags, by command, that 1.4.3 lets callers shorten although more of ours begin so.
var shortIn143 = map[string]string{
	"genv devices": "no-cleanup", "genv envs": "no-cleanup",
	"genv devices ps": "no-header", "genv envs ps": "no-header", "genv remote": "exit-on-error",
	"genv remote activate": "gpus no-prompt", "genv remote devices": "format no-summary",
	"genv remote enforce": "interval", "genv remote envs": "format no-summary timestamp",
	"genv remote llm ps": "format no-summary timestamp", "genv remote llm serve": "gpus",
	"genv remote monitor": "config-dir interval", "genv remote query": "name",
}

func (a *arrangement) beginningWith(prefix string) (found []string) {
	for _, f := range a.flags() {
		begins := func(name string) bool { return len(name) > 1 && strings.HasPrefix(name, prefix) }
		if at := slices.IndexFunc(f.names, begins); at >= 0 {
			found = append(found, f.names[at])
		}
	}
	return found
}
