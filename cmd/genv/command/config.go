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

	// These can't be keys.
	Asked    = "asked"  // for what is dangerous
	Output   = "output" // programs rely on the default
	OfPolicy = "policy" // policy.yaml says it
)

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
