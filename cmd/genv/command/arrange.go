package command

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

// Arrange rewrites a command line so that package cli reads it as 1.4.3, with Python's
// argparse, does:
//
//   - a long flag may be cut short, as in `--over`, as long as only one flag of the
//     command begins so, or only one of those that 1.4.3 has; otherwise the error lists
//     them;
//   - `--query a b` becomes `--query a --query b`;
//   - flags may follow the arguments of a command.
//
// Flags by the name that they had before (renamed) get the present one, with a warning.
//
// What follows `--`, and the command lines of `genv lock` and `genv run`, stay as they are.
func Arrange(app *cli.App, args []string) ([]string, error) {
	a := arrangement{warnings: app.ErrWriter, line: slices.Clone(args[:1]), commands: app.Commands}
	for rest := args[1:]; len(rest) > 0; {
		taken, err := a.take(rest)
		if err != nil {
			return nil, err
		}
		rest = rest[taken:]
	}
	return append(a.line, a.arguments...), nil
}

// arrangement is a command line while it is rewritten.
type arrangement struct {
	warnings  io.Writer
	line      []string       // commands and their flags
	arguments []string       // of the last command, which follow the line
	path      []*cli.Command // the commands of the line
	command   *cli.Command   // the last of them
	commands  []*cli.Command // its subcommands
}

// take moves the next words into the arrangement, and says how many.
func (a *arrangement) take(words []string) (int, error) {
	word := words[0]
	sub := slices.IndexFunc(a.commands, func(c *cli.Command) bool { return c.HasName(word) })
	switch {
	case a.command != nil && a.command.SkipFlagParsing:
		a.arguments = words
		return len(words), nil
	case word == "--":
		a.arguments = append(append([]string{"--"}, a.arguments...), words[1:]...)
		return len(words), nil
	case isFlag(word):
		return a.takeFlag(words)
	case len(a.arguments) == 0 && sub >= 0:
		a.line = append(a.line, word)
		a.command, a.commands = a.commands[sub], a.commands[sub].Subcommands
		a.path = append(a.path, a.command)
		return 1, nil
	case takesProgram(a.command): // what follows is its command's
		a.arguments = append(a.arguments, words...)
		return len(words), nil
	case len(a.arguments) == 0:
		if err := a.removed(word); err != nil { // before its flags are found to be unknown
			return 0, err
		}
	}
	a.arguments = append(a.arguments, word)
	return 1, nil
}

// removed is the error for a command that an earlier version had.
func (a *arrangement) removed(word string) error {
	parent := "genv"
	for _, c := range a.path {
		parent += " " + c.Name
	}
	if name := parent + " " + word; removed[name] != "" {
		return unknownError("command", strconv.Quote(word), name, "", parent)
	}
	return nil
}

// isFlag says whether a word is a flag; -1 is a number.
func isFlag(word string) bool {
	return len(word) > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9')
}

// takeFlag takes a flag with its values.
func (a *arrangement) takeFlag(words []string) (int, error) {
	flag, joined, err := a.unabbreviated(words[0])
	name := strings.TrimLeft(flag, "-")
	switch {
	case err != nil:
		return 0, err
	case joined || !a.takesValue(name):
		a.line = append(a.line, flag)
		return 1, nil
	case !takesMany(a.flag(name)):
		taken := min(2, len(words))
		a.line = append(append(a.line, flag), words[1:taken]...)
		return taken, nil
	}
	values := words[1:]
	if end := slices.IndexFunc(values, isFlag); end >= 0 {
		values = values[:end]
	}
	for _, value := range values {
		a.line = append(a.line, flag, value)
	}
	if len(values) == 0 {
		a.line = append(a.line, flag) // the parser says that a value is missing
	}
	return 1 + len(values), nil
}

// flags are the flags of the last command.
func (a *arrangement) flags() []cli.Flag {
	if a.command == nil {
		return []cli.Flag{cli.HelpFlag, cli.VersionFlag}
	}
	return append([]cli.Flag{cli.HelpFlag}, a.command.Flags...)
}

// takesProgram says whether a command runs another one, whose command line follows its flags.
func takesProgram(cmd *cli.Command) bool {
	return cmd != nil && strings.HasPrefix(cmd.ArgsUsage, "COMMAND ")
}

// takesValue says whether a flag has a value; unknown flags are left to the parser.
func (a *arrangement) takesValue(name string) bool {
	f := a.flag(name)
	return f != nil && f.TakesValue()
}

// flag is the flag of the last command that has a name; nil if there is none.
func (a *arrangement) flag(name string) cli.DocGenerationFlag {
	for _, f := range a.flags() {
		if documented, ok := f.(cli.DocGenerationFlag); ok && slices.Contains(f.Names(), name) {
			return documented
		}
	}
	return nil
}

// unabbreviated writes a long flag in full; joined says whether its value follows "=".
func (a *arrangement) unabbreviated(word string) (flag string, joined bool, err error) {
	flag, value, joined := strings.Cut(word, "=")
	prefix, long := strings.CutPrefix(flag, "--")
	if now := renamed[prefix]; long && a.flag(prefix) == nil && a.flag(now) != nil {
		fmt.Fprintln(a.warnings, "genv:", renamedWarning(flag, "--"+now))
		word, flag, prefix = strings.Replace(word, prefix, now, 1), "--"+now, now
	}
	exact := a.flag(prefix) != nil
	if !long || exact && len(prefix) > 1 {
		return word, joined, nil
	}
	found := a.beginningWith(prefix)
	if len(found) > 1 {
		if old := in143(a.path, found); len(old) == 1 {
			found = old
		}
	}
	switch {
	case len(found) == 0 || exact && len(found) > 1: // --t is the same as -t, unless it begins one flag
		return word, joined, nil
	case len(found) > 1:
		return "", false, UsageError("%s is ambiguous: write %s", flag, strings.Join(found, " or "))
	case joined:
		return found[0] + "=" + value, true, nil
	}
	return found[0], false, nil
}

// beginningWith are the long flags of the last command that begin so, each by one name.
func (a *arrangement) beginningWith(prefix string) (found []string) {
	for _, f := range a.flags() {
		if at := slices.IndexFunc(f.Names(), func(name string) bool { return len(name) > 1 && strings.HasPrefix(name, prefix) }); at >= 0 {
			found = append(found, "--"+f.Names()[at])
		}
	}
	return found
}

// in143 are those of a command's flags that genv 1.4.3 has too: what was a unique
// abbreviation there must not become ambiguous because we have more flags.
func in143(path []*cli.Command, flags []string) []string {
	var words []string
	for _, cmd := range path {
		words = append(words, cmd.Name)
	}
	old := strings.Fields(flags143(strings.Join(words, " ")))
	return slices.DeleteFunc(slices.Clone(flags), func(flag string) bool {
		return !slices.Contains(old, strings.TrimPrefix(flag, "--"))
	})
}

// flags143 are the long flags of a command of 1.4.3.
func flags143(command string) string {
	const rules = "non-env-processes no-non-env-processes env-devices no-env-devices env-memory no-env-memory max-devices-per-user max-devices-for-user"
	switch command {
	case "activate":
		return "help eid id name gpu-memory gpus no-prompt no-attach over-subscribe no-load"
	case "attach":
		return "help config count index refresh over-subscribe"
	case "config":
		return "help quiet refresh clear load save"
	case "devices", "envs":
		return "help no-cleanup reset"
	case "devices attach":
		return "help eid allow-over-subscription count index"
	case "devices detach":
		return "help eid index quiet"
	case "devices ps", "envs ps", "llm ps":
		return "help no-header timestamp format"
	case "envs activate":
		return "help eid uid username pid kernel-id"
	case "envs config":
		return "help eid"
	case "enforce", "remote enforce":
		return "help interval " + rules
	case "llm serve":
		return "help host port gpus gpu-memory"
	case "monitor", "remote monitor":
		return "help config-dir port interval"
	case "remote":
		return "help host hostfile username timeout exit-on-error quiet"
	case "remote activate":
		return "help name gpus no-prompt"
	case "remote devices":
		return "help no-header no-summary format"
	case "remote envs", "remote llm ps":
		return "help no-header no-summary timestamp format"
	case "remote llm serve":
		return "help gpus"
	case "remote query":
		return "help name query queries"
	case "usage snapshot":
		return "help format type"
	}
	return ""
}
