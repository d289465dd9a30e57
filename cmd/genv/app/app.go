package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/configfile"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Commands are those of a program, without those about genv itself. The one that is named has
// its subcommands, all have them if none is named; others may lack them.
type Commands func(p command.Program, named string) []*cli.Command

// Help is printed as the man pages have it.
func init() { cli.HelpPrinter = printHelp }

// Run carries out one command line, of which the first word is the program's name, and
// returns the exit code.
func Run(ctx context.Context, p command.Program, commands Commands, args []string) int {
	app := build(p, commands, named(args))
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

// named is the command that a line is for; empty if the line may be about any. Most lines are
// for a command of a user, and take less time than the making of all commands of a fleet.
func named(args []string) string {
	if len(args) < 2 || strings.HasPrefix(args[1], "-") || slices.Contains([]string{"help", "man", "__complete"}, args[1]) {
		return ""
	}
	return args[1]
}

// New has the commands of a program, and those about genv itself.
func New(p command.Program, commands Commands) *cli.App { return build(p, commands, "") }

func build(p command.Program, commands Commands, named string) *cli.App {
	app := &cli.App{
		Name:                      "genv",
		Usage:                     "GPU environments on shared machines, and their enforcement on a fleet",
		Version:                   p.Version,
		Reader:                    p.In,
		Writer:                    p.Out,
		ErrWriter:                 p.Err,
		DisableSliceFlagSeparator: true,                     // gpu[1,3] has a comma too
		Flags:                     []cli.Flag{cli.HelpFlag}, // which the command help would replace
		HideHelpCommand:           true,
		OnUsageError:              usageError,
		Action:                    command.RefuseUnknown,
		ExitErrHandler:            func(*cli.Context, error) {}, // run decides
		Commands:                  append(commands(p, named), common(p, commands)...),
	}
	for _, cmd := range app.Commands {
		prepare(p, cmd)
	}
	return app
}

// prepare makes every command report errors in one line, refuse what it doesn't know,
// and read the configuration.
func prepare(p command.Program, cmd *cli.Command) {
	cmd.OnUsageError = usageError
	cmd.HideHelpCommand = true
	cmd.Action = checked(p, cmd.Action)
	for _, flag := range cmd.Flags {
		if f, ok := flag.(*cli.BoolFlag); ok {
			f.DisableDefaultText = f.DefaultText == "" // "(default: false)" is no help
		}
	}
	for _, sub := range cmd.Subcommands {
		prepare(p, sub)
	}
}

// checked runs an action only if its command takes what was given, with the defaults of
// the configuration.
func checked(p command.Program, action cli.ActionFunc) cli.ActionFunc {
	if action == nil {
		return command.RefuseUnknown
	}
	return func(c *cli.Context) error {
		if err := command.Check(c); err != nil {
			return err
		}
		defaults, err := configfile.Apply(&p, c)
		if err != nil {
			return err
		}
		return defaults.Explain(action(c))
	}
}

func usageError(c *cli.Context, err error, _ bool) error {
	return command.FlagError(c, err)
}

// common are the commands about genv itself.
func common(p command.Program, commands Commands) []*cli.Command {
	root := func() *cli.App { return New(p, commands) }
	return []*cli.Command{
		versionCommand(p), command.HelpCommand(), manCommand(root),
		completionCommand(p), completeCommand(p, root),
	}
}
