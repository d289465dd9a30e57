// Package app is the program of all commands: it parses a command line, reads the configuration
// for it, runs the command, prints its error, and decides the exit code.
//
//	ctx, p := app.Process(version)
//	os.Exit(app.Run(ctx, p, os.Args))
//
// It has the commands about genv itself: version, help, man and completion.
package app

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/configfile"
	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	"github.com/seed-3119e985/genv/cmd/genv/host"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/cmd/genv/user"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Help is printed as the man pages have it.
func init() { cli.HelpPrinter = printHelp }

// Run carries out one command line, of which the first word is the program's name, and
// returns the exit code.
func Run(ctx context.Context, p command.Program, args []string) int {
	app := build(p, named(args))
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

// New has all commands of genv.
func New(p command.Program) *cli.App { return build(p, "") }

// build gives the command that is named its subcommands; all have them if none is named, and others
// may lack them.
func build(p command.Program, named string) *cli.App {
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
		Commands:                  slices.Concat(user.Commands(p), host.Commands(p), fleet.Commands(p, named), common(p)),
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
		defaults, err := configfile.Apply(&p, c, func() []*cli.Command { return fleet.OnHosts(p) })
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
func common(p command.Program) []*cli.Command {
	root := func() *cli.App { return New(p) }
	return []*cli.Command{
		versionCommand(p), command.HelpCommand(), manCommand(root),
		completionCommand(p), completeCommand(p, root),
	}
}

// VersionDocument is the JSON of `genv version`; docs/json.md describes it.
type VersionDocument struct {
	Schema   string `json:"schema"`
	Version  string `json:"version"`
	Protocol int    `json:"protocol"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func versionCommand(p command.Program) *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version",
		Flags: []cli.Flag{command.FormatFlag("tui", "json")},
		Action: func(c *cli.Context) error {
			format, err := command.FormatOf(c, "tui", "json")
			switch {
			case err != nil:
				return err
			case format == "json":
				return render.WriteJSON(p.Out, VersionDocument{
					Schema: "genv.version/1", Version: p.Version, Protocol: agent.Version,
					Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
				})
			}
			_, err = fmt.Fprintln(p.Out, p.Version)
			return err
		},
	}
}
