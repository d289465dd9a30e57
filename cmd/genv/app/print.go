package app

import (
	"io"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
)

// printHelp is a cli.HelpPrinter.
func printHelp(w io.Writer, _ string, of any) {
	switch of := of.(type) {
	case *cli.App:
		page := PageOf(Root(of), of.Name)
		_ = WriteHelp(w, &page, render.Width(w)) // as with package cli, a closed pipe is the reader's wish
	case *cli.Command:
		page := PageOf(of, of.HelpName)
		_ = WriteHelp(w, &page, render.Width(w))
	}
}

// Root is the program itself as a command.
func Root(app *cli.App) *cli.Command {
	return &cli.Command{
		Name: app.Name, Usage: app.Usage, Description: app.Description, Subcommands: app.Commands,
		Flags: []cli.Flag{cli.VersionFlag},
	}
}

// manCommand is `genv man`, which writes all man pages. root is the whole program.
func manCommand(root func() *cli.App) *cli.Command {
	return &cli.Command{
		Name: "man", Usage: "write the man pages of all commands into a folder", ArgsUsage: "DIR", Hidden: true,
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return command.UsageError("missing folder: write `genv man DIR`")
			}
			app := root()
			return WriteAll(c.Args().First(), Root(app), app.Name, app.Version)
		},
	}
}
