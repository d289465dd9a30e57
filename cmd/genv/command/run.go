package command

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Help is printed as the man pages have it.
func init() { cli.HelpPrinter = printHelp }

// Commands makes the commands of the program. If one is named, the others may lack their
// subcommands: most lines are for a command of a user, and making all commands of a fleet takes time.
type Commands func(p Program, named string) []*cli.Command

// Run carries out one command line, of which the first word is the program's name, and returns the exit code.
func Run(ctx context.Context, p Program, commands Commands, args []string) int {
	app := build(p, commands, named(args))
	line, err := Arrange(app, args)
	if err == nil {
		err = app.RunContext(ctx, line)
	}
	var exit *ExitError
	if err != nil && !(errors.As(err, &exit) && exit.Err == nil) {
		fmt.Fprintln(p.Err, "genv:", text.PrintableLines(text.Late(err, 0).Error()))
	}
	return ExitCode(err)
}

// named is the command that a line is for; empty if the line may be about any.
func named(args []string) string {
	aboutAll := []string{"help", "man", "__complete"}
	if len(args) < 2 || strings.HasPrefix(args[1], "-") || slices.Contains(aboutAll, args[1]) {
		return ""
	}
	return args[1]
}

// New is the program with all commands.
func New(p Program, commands Commands) *cli.App { return build(p, commands, "") }

func build(p Program, commands Commands, named string) *cli.App {
	root := func() *cli.App { return New(p, commands) }
	var made []*cli.Command
	if named != versionName { // which is called often, and alone
		made = commands(p, named)
	}
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
		OnUsageError:              FlagError,
		Action:                    RefuseUnknown,
		ExitErrHandler:            func(*cli.Context, error) {}, // run decides
		Commands: append(made, versionCommand(p), helpCommand(made), manCommand(root), completionCommand(p),
			completeCommand(p, root)),
	}
	for _, cmd := range app.Commands {
		prepare(p, commands, cmd, cmd.Category == Configured, cmd.Name == remoteSection)
	}
	return app
}

// prepare makes every command report errors in one line, refuse what it doesn't know,
// and read the configuration if it is to. Those that are accountable run as the controller's account.
func prepare(p Program, commands Commands, cmd *cli.Command, configured, accountable bool) {
	cmd.OnUsageError = FlagError
	cmd.HideHelpCommand = true
	asAccount := accountable && cmd.Category != Personal || cmd.Category == AsAccount
	cmd.Action = checked(p, commands, cmd.Action, configured, asAccount)
	for _, sub := range cmd.Subcommands {
		prepare(p, commands, sub, configured, accountable)
	}
}

// checked runs an action only if its command takes what was given, with the defaults of the configuration.
func checked(p Program, commands Commands, action cli.ActionFunc, configured, accountable bool) cli.ActionFunc {
	if action == nil {
		return RefuseUnknown
	}
	return func(c *cli.Context) error {
		if err := checkPlaces(c); err != nil {
			return err
		}
		if accountable {
			if err := becomeAccount(&p, c); err != nil {
				return err
			}
		}
		defaults := application{program: &p, context: c}
		if configured {
			if err := defaults.apply(commands); err != nil {
				return err
			}
		}
		err := checkValues(c)
		if err == nil {
			err = action(c)
		}
		return defaults.Explain(err)
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

const versionName = "version"

func versionCommand(p Program) *cli.Command {
	format := ""
	return &cli.Command{
		Name:  versionName,
		Usage: "print the version",
		Flags: []cli.Flag{FormatFlag(&format, "tui", "json")},
		Action: func(*cli.Context) error {
			if format == "json" {
				return render.WriteJSON(p.Out, VersionDocument{
					Schema: "genv.version/1", Version: p.Version, Protocol: frame.Version,
					Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
				})
			}
			_, err := fmt.Fprintln(p.Out, p.Version)
			return err
		},
	}
}
