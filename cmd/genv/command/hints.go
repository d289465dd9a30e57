package command

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// FlagError is the error for flags that a command could not read. For an unknown flag it
// names the nearest one.
func FlagError(c *cli.Context, err error) error {
	const undefined = "flag provided but not defined: -"
	name, unknown := strings.CutPrefix(err.Error(), undefined)
	if !unknown {
		return UsageError("%w; see %s --help", err, c.Command.HelpName)
	}
	word := "--" + name
	if len([]rune(name)) == 1 {
		word = "-" + name
	}
	near := nearestFlag(name, c.Command.Flags)
	if near != "" {
		near = "--" + near
	}
	return unknownError("flag", word, word, near, c.Command.HelpName)
}

// nearestFlag is the flag that a name was meant to be: the nearest one in its letters, or
// one that is a part of the name, or has it as a part. It is "" if there is none.
func nearestFlag(name string, flags []cli.Flag) string {
	var names []string
	for _, flag := range flags {
		for _, n := range flag.Names() {
			if len(n) > 1 {
				names = append(names, n)
			}
		}
	}
	if len(name) < 3 {
		return ""
	}
	if near := text.Nearest(name, names); near != "" {
		return near
	}
	part := ""
	for _, n := range names {
		if len(n) > 3 && len(name) > 3 && (strings.Contains(name, n) || strings.Contains(n, name)) && len(n) > len(part) {
			part = n
		}
	}
	return part
}
