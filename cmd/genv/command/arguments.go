package command

import (
	"slices"

	"github.com/urfave/cli/v2"
)

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
	return FlagOf(command, flag) != nil
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
	return unknown(word, c.Command.Subcommands, c.Command.HelpName)
}
