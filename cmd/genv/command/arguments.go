package command

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// manyValued are the flags after which 1.4.3 takes several values, with other
// flags allowed behind them.
var manyValued = []string{"--max-devices-for-user", "--query"}

// Arrange repeats a many-valued flag before each of its values, so that
// `--query a b` reads as `--query a --query b`. What stands behind `--`, or is
// the command of `genv lock` or `genv run`, stays as it is.
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

// Given is the context on which a flag was given: the command itself, or one
// above it, so that `genv remote -H a enforce` and `genv remote enforce -H a`
// are the same. Where nobody gave it, it is the command itself, for defaults.
func Given(c *cli.Context, name string) *cli.Context {
	for _, ctx := range c.Lineage() {
		if ctx.Command != nil && slices.Contains(ctx.LocalFlagNames(), name) {
			return ctx
		}
	}
	return c
}

func IsGiven(c *cli.Context, name string) bool {
	return slices.Contains(Given(c, name).LocalFlagNames(), name)
}

// AllGiven are the values of a flag from every level at which it was given.
func AllGiven(c *cli.Context, name string) []string {
	var values []string
	for _, ctx := range c.Lineage() {
		if ctx.Command != nil && slices.Contains(ctx.LocalFlagNames(), name) {
			values = append(ctx.StringSlice(name), values...)
		}
	}
	return values
}

// RefuseArguments is for commands that take flags only.
func RefuseArguments(c *cli.Context) error {
	if c.Args().Present() {
		return Usage("%q is one word too many; see %s --help", c.Args().First(), c.Command.HelpName)
	}
	return nil
}

// RefuseUnknown is the action of commands that only hold others.
func RefuseUnknown(c *cli.Context) error {
	if word := c.Args().First(); word != "" {
		return Usage("%q is no command of %s; see %s --help", word, c.Command.HelpName, c.Command.HelpName)
	}
	return cli.ShowSubcommandHelp(c)
}
