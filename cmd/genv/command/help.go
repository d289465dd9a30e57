package command

import (
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// HelpCommand is `genv help`: `genv help remote enforce` prints what `genv remote enforce
// --help` does.
func HelpCommand() *cli.Command {
	return &cli.Command{
		Name: "help", Usage: "print the help of a command", ArgsUsage: "[COMMAND…]",
		Action: func(c *cli.Context) error {
			words, commands := c.Args().Slice(), c.App.Commands
			for _, word := range words {
				at := slices.IndexFunc(commands, func(cmd *cli.Command) bool { return cmd.HasName(word) })
				if at < 0 {
					return unknown(word, commands, "genv")
				}
				commands = commands[at].Subcommands
			}
			return c.App.RunContext(c.Context, append(append([]string{c.App.Name}, words...), "--help"))
		},
	}
}

// unknown is the error for a word that isn't one of the commands.
func unknown(word string, commands []*cli.Command, parent string) error {
	var names []string
	for _, cmd := range commands {
		if !cmd.Hidden {
			names = append(names, cmd.Name)
		}
	}
	near := text.Nearest(word, names)
	if near != "" {
		near = strconv.Quote(near)
	}
	return unknownError("command", strconv.Quote(word), parent+" "+word, near, parent)
}
