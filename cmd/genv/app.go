package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/shell"
)

// program is what the commands see of the world outside.
type program struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string
	now      func() time.Time
}

// run carries out one command line and returns the exit code.
func (p *program) run(ctx context.Context, args []string) int {
	if name, ok := shell.Shim(args[0]); ok {
		return p.shim(ctx, name, args[1:])
	}
	err := p.app().RunContext(ctx, arrange(args))
	var exit *exitError
	if err != nil && !(errors.As(err, &exit) && exit.err == nil) {
		fmt.Fprintln(p.err, "genv:", printable(err.Error()))
	}
	return exitCode(err)
}

func (p *program) app() *cli.App {
	app := &cli.App{
		Name:                      "genv",
		Usage:                     "GPU environments on shared machines, and their enforcement on a fleet",
		Version:                   version,
		Reader:                    p.in,
		Writer:                    p.out,
		ErrWriter:                 p.err,
		DisableSliceFlagSeparator: true, // commas stand inside gpu[1,3] too
		HideHelpCommand:           true,
		CustomAppHelpTemplate:     "",
		ExitErrHandler:            func(*cli.Context, error) {}, // run decides
		Commands: append(p.personCommands(),
			p.enforceCommand(),
			p.policyCommand(),
			p.historyCommand(),
			p.remoteCommand(),
			p.usageCommand(),
			p.versionCommand(),
		),
	}
	for _, command := range app.Commands {
		prepare(command)
	}
	app.OnUsageError = usageError
	app.CommandNotFound = nil
	app.Action = refuseUnknown
	return app
}

// prepare makes every command say what is wrong in one line, and refuse what
// it does not know.
func prepare(command *cli.Command) {
	command.OnUsageError = usageError
	command.HideHelpCommand = true
	if command.Action == nil {
		command.Action = refuseUnknown
	}
	for _, flag := range command.Flags {
		if f, ok := flag.(*cli.BoolFlag); ok {
			f.DisableDefaultText = f.DefaultText == "" // "(default: false)" tells nobody anything
		}
	}
	for _, sub := range command.Subcommands {
		prepare(sub)
	}
}

func usageError(c *cli.Context, err error, _ bool) error {
	return usage("%w; see %s --help", err, c.Command.HelpName)
}

// refuseUnknown is the action of commands that only hold others.
func refuseUnknown(c *cli.Context) error {
	if word := c.Args().First(); word != "" {
		return usage("%q is no command of %s; see %s --help", word, c.Command.HelpName, c.Command.HelpName)
	}
	return cli.ShowSubcommandHelp(c)
}

func (p *program) versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version",
		Action: func(*cli.Context) error {
			_, err := fmt.Fprintln(p.out, version)
			return err
		},
	}
}
