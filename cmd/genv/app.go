package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	"github.com/seed-3119e985/genv/cmd/genv/host"
	"github.com/seed-3119e985/genv/cmd/genv/user"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// program is genv with its streams, clock and environment variables.
type program struct{ command.Program }

// run carries out one command line and returns the exit code.
func (p *program) run(ctx context.Context, args []string) int {
	if name, ok := user.Shim(args[0]); ok {
		return user.RunShim(ctx, p.Program, name, args[1:])
	}
	app := p.app(args)
	line, err := command.Arrange(app, args)
	if err == nil {
		err = app.RunContext(ctx, line)
	}
	var exit *command.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.Err == nil) {
		fmt.Fprintln(p.Err, "genv:", text.PrintableLines(err.Error()))
	}
	return command.ExitCode(err)
}

// app has the commands that a command line may be about.
func (p *program) app(line []string) *cli.App {
	app := &cli.App{
		Name:                      "genv",
		Usage:                     "GPU environments on shared machines, and their enforcement on a fleet",
		Version:                   p.Version,
		Reader:                    p.In,
		Writer:                    p.Out,
		ErrWriter:                 p.Err,
		DisableSliceFlagSeparator: true, // gpu[1,3] has a comma too
		HideHelpCommand:           true,
		OnUsageError:              usageError,
		Action:                    command.RefuseUnknown,
		ExitErrHandler:            func(*cli.Context, error) {}, // run decides
		Commands:                  slices.Concat(user.Commands(p.Program), host.Commands(p.Program), fleet.Commands(p.Program, line), []*cli.Command{p.versionCommand()}),
	}
	for _, cmd := range app.Commands {
		prepare(cmd)
	}
	return app
}

// prepare makes every command report errors in one line, and refuse what it
// doesn't know.
func prepare(cmd *cli.Command) {
	cmd.OnUsageError = usageError
	cmd.HideHelpCommand = true
	cmd.Action = checked(cmd.Action)
	for _, flag := range cmd.Flags {
		if f, ok := flag.(*cli.BoolFlag); ok {
			f.DisableDefaultText = f.DefaultText == "" // "(default: false)" is no help
		}
	}
	for _, sub := range cmd.Subcommands {
		prepare(sub)
	}
}

// checked runs an action only if its command takes what was given.
func checked(action cli.ActionFunc) cli.ActionFunc {
	if action == nil {
		return command.RefuseUnknown
	}
	return func(c *cli.Context) error {
		if err := command.Check(c); err != nil {
			return err
		}
		return action(c)
	}
}

func usageError(c *cli.Context, err error, _ bool) error {
	return command.UsageError("%w; see %s --help", err, c.Command.HelpName)
}

func (p *program) versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version",
		Action: func(*cli.Context) error {
			_, err := fmt.Fprintln(p.Out, p.Version)
			return err
		},
	}
}
