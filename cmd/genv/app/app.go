package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/completion"
	"github.com/seed-3119e985/genv/cmd/genv/configfile"
	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	"github.com/seed-3119e985/genv/cmd/genv/host"
	"github.com/seed-3119e985/genv/cmd/genv/manual"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/cmd/genv/user"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// program is genv with its streams, clock and environment variables.
type program struct{ command.Program }

// Help is printed as the man pages have it.
func init() { cli.HelpPrinter = manual.Print }

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
		DisableSliceFlagSeparator: true,                     // gpu[1,3] has a comma too
		Flags:                     []cli.Flag{cli.HelpFlag}, // which the command help would replace
		HideHelpCommand:           true,
		OnUsageError:              usageError,
		Action:                    command.RefuseUnknown,
		ExitErrHandler:            func(*cli.Context, error) {}, // run decides
		Commands:                  slices.Concat(user.Commands(p.Program), host.Commands(p.Program), fleet.Commands(p.Program, line), p.commands()),
	}
	for _, cmd := range app.Commands {
		p.prepare(cmd)
	}
	return app
}

// prepare makes every command report errors in one line, refuse what it doesn't know,
// and read the configuration.
func (p *program) prepare(cmd *cli.Command) {
	cmd.OnUsageError = usageError
	cmd.HideHelpCommand = true
	cmd.Action = p.checked(cmd.Action)
	for _, flag := range cmd.Flags {
		if f, ok := flag.(*cli.BoolFlag); ok {
			f.DisableDefaultText = f.DefaultText == "" // "(default: false)" is no help
		}
	}
	for _, sub := range cmd.Subcommands {
		p.prepare(sub)
	}
}

// checked runs an action only if its command takes what was given, with the defaults of
// the configuration.
func (p *program) checked(action cli.ActionFunc) cli.ActionFunc {
	if action == nil {
		return command.RefuseUnknown
	}
	return func(c *cli.Context) error {
		if err := command.Check(c); err != nil {
			return err
		}
		defaults, err := configfile.Apply(&p.Program, c)
		if err != nil {
			return err
		}
		return defaults.Explain(action(c))
	}
}

func usageError(c *cli.Context, err error, _ bool) error {
	return command.FlagError(c, err)
}

// commands are about genv itself.
func (p *program) commands() []*cli.Command {
	root := func() *cli.App { return p.app([]string{"remote"}) } // with all commands
	return []*cli.Command{
		p.versionCommand(), command.HelpCommand(), manual.Command(root),
		completion.Command(p.Program), completion.Completer(p.Program, root),
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

func (p *program) versionCommand() *cli.Command {
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
