package command

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// The category of a flag says what config.yaml may do with it. A flag without one is about a
// single run. The others are a sum of these words.
const (
	Site    = "site "   // a key in the section of each command that has the flag
	Top     = "top "    // with Site: a key at the top of the file, too
	Remote  = "remote " // with Site and Top: a key under `remote:`, too
	Shared  = "shared " // with Site: a command without the key takes it from `enforce:`
	Loop    = "loop "   // with Site: not in a dry run, and not when enforce runs once
	Record  = "record " // with Site: not in a dry run
	OrOff   = "off "    // with Site: `off` in place of a path
	OrNone  = "none "   // with Site: `none` in place of a path
	OfFleet = Site + Top + Remote

	// AllHosts is for --host: without it, the command takes all hosts of the inventory.
	AllHosts = "all-hosts "

	// These can't be keys.
	Asked    = "asked"   // for what is dangerous
	Output   = "output"  // programs rely on the default
	OfPolicy = "policy " // policy.yaml says it

	// Connection is for a flag that help leaves to a page that many commands share.
	Connection = "connection "

	// Many is for a flag that takes all words up to the next flag, as in 1.4.3.
	Many = "many "
)

// Configured is the category of a command that reads the configuration files, with all below it.
const Configured = "configured"

// Unless is a word for the category of a flag that an environment variable may replace.
func Unless(variable string) string { return "$" + variable + " " }

// CategoryOf is the category of a flag, as words.
func CategoryOf(flag cli.Flag) []string {
	f, ok := flag.(cli.CategorizableFlag)
	if !ok {
		return nil
	}
	return strings.Fields(f.GetCategory())
}

// Has says whether a word is in the category of a flag.
func Has(flag cli.Flag, word string) bool {
	return slices.Contains(CategoryOf(flag), strings.TrimSpace(word))
}

// FlagOf is the flag of a command with a name; nil if it has none.
func FlagOf(command *cli.Command, name string) cli.Flag {
	for _, flag := range command.Flags {
		if slices.Contains(flag.Names(), name) {
			return flag
		}
	}
	return nil
}

// Placeholder is the name of a flag's value: the one in backquotes.
func Placeholder(flag cli.DocGenerationFlag) string {
	if parts := strings.SplitN(flag.GetUsage(), "`", 3); len(parts) == 3 {
		return parts[1]
	}
	return "VALUE"
}

// takesMany says whether all words up to the next flag are values of a flag.
func takesMany(flag cli.Flag) bool {
	_, some := flag.(*choicesFlag)
	return some || Has(flag, Many)
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
