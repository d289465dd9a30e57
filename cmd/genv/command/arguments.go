package command

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// manyValued are the flags that take several values, as in 1.4.3.
var manyValued = []string{"--max-devices-for-user", "--query"}

// Arrange repeats a flag that takes several values before each of them: it makes
// `--query a --query b` of `--query a b`. What follows `--`, and the command lines
// of `genv lock` and `genv run`, stay as they are.
func Arrange(args []string) []string {
	if len(args) > 1 && (args[1] == "lock" || args[1] == "run") {
		return args
	}
	var out []string
	flag := ""
	for i, word := range args {
		switch {
		case word == "--":
			return append(out, args[i:]...)
		case strings.HasPrefix(word, "-"):
			flag = ""
			if slices.Contains(manyValued, word) {
				flag = word
				if !valueFollows(args, i) {
					out = append(out, word) // the parser says that a value is missing
				}
				continue
			}
			out = append(out, word)
		case flag != "":
			out = append(out, flag, word)
		default:
			out = append(out, word)
		}
	}
	return out
}

func valueFollows(args []string, i int) bool {
	return i+1 < len(args) && !strings.HasPrefix(args[i+1], "-")
}

// Given is the context on which a flag was given: that of the command, or of one
// above it, so that `genv remote -H a enforce` and `genv remote enforce -H a` are
// the same. If the flag wasn't given, it is that of the command, with the default.
func Given(c *cli.Context, name string) *cli.Context {
	for _, ctx := range c.Lineage() {
		if isGivenOn(ctx, name) {
			return ctx
		}
	}
	return c
}

// Bool is the value of a flag, on whatever level it was given.
func Bool(c *cli.Context, name string) bool { return Given(c, name).Bool(name) }

// String is the value of a flag, on whatever level it was given.
func String(c *cli.Context, name string) string { return Given(c, name).String(name) }

// IsGiven says whether a flag was given, on whatever level.
func IsGiven(c *cli.Context, name string) bool { return isGivenOn(Given(c, name), name) }

func isGivenOn(c *cli.Context, name string) bool {
	return c.Command != nil && slices.Contains(c.LocalFlagNames(), name)
}

// AllGiven are the values of a flag from all levels.
func AllGiven(c *cli.Context, name string) []string {
	var values []string
	for _, ctx := range c.Lineage() {
		if isGivenOn(ctx, name) {
			values = append(ctx.StringSlice(name), values...)
		}
	}
	return values
}

// Takes says whether a command has a flag.
func Takes(command *cli.Command, flag string) bool {
	return slices.ContainsFunc(command.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), flag) })
}

// Check refuses arguments of a command without ArgsUsage, and flags of the commands
// above it that it doesn't have itself and would ignore.
func Check(c *cli.Context) error {
	if c.Args().Present() && c.Command.ArgsUsage == "" {
		if len(c.Command.Subcommands) > 0 {
			return RefuseUnknown(c)
		}
		return UsageError("unexpected argument %q; see %s --help", c.Args().First(), c.Command.HelpName)
	}
	for _, ctx := range c.Lineage()[1:] {
		if ctx.Command == nil {
			continue
		}
		for _, flag := range ctx.Command.Flags {
			if name := flag.Names()[0]; isGivenOn(ctx, name) && !Takes(c.Command, name) {
				return UsageError("%s has no flag --%s; see %s --help", c.Command.HelpName, name, c.Command.HelpName)
			}
		}
	}
	return nil
}

// RefuseUnknown is the action of commands that only have subcommands.
func RefuseUnknown(c *cli.Context) error {
	word := c.Args().First()
	if word == "" {
		return cli.ShowSubcommandHelp(c)
	}
	var names []string
	for _, sub := range c.Command.Subcommands {
		names = append(names, sub.Name)
	}
	if near := text.Nearest(word, names); near != "" {
		return UsageError("unknown command %q (did you mean %q?)", word, near)
	}
	return UsageError("unknown command %q; see %s --help", word, c.Command.HelpName)
}
