// Package command makes a program of genv's commands: it parses a command line, reads the configuration files for it,
// runs the command, prints its error, and decides the exit code.
//
//	os.Exit(command.Run(ctx, program, commands, os.Args))
//
// It contains what commands share (streams, clock, flags and arguments), and the commands version, help, man and
// completion. Package render formats the output.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Program is a command's access to the outside world.
type Program struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	Now      func() time.Time
	Version  string
	// Reader reads what users can make large or slow, in a process that can be killed; nil reads it here.
	Reader *proc.ReaderProcess

	// SharedAccount is set by genv-demo alone, where one account plays several users. It sets whose a process is, and
	// the names in envs.json are believed.
	SharedAccount func(*snapshot.Process)
}

// Warn prints warnings to stderr, one per line.
func (p *Program) Warn(warnings ...string) {
	for _, w := range warnings {
		fmt.Fprintln(p.Err, text.PrintableLines(w))
	}
}

// Warnf prints a warning to stderr.
func (p *Program) Warnf(format string, args ...any) { p.Warn(fmt.Sprintf(format, args...)) }

// Logger writes to stderr: warnings, or everything with --verbose.
func (p *Program) Logger(c *cli.Context) zerolog.Logger {
	level := zerolog.WarnLevel
	if c.Bool("verbose") {
		level = zerolog.DebugLevel
	}
	out := zerolog.ConsoleWriter{Out: p.Err, NoColor: !render.Colourful(p.Err, p.Getenv), TimeFormat: render.TimeFormat}
	if render.InJournal(p.Err, p.Getenv) {
		out.PartsExclude = []string{zerolog.TimestampFieldName}
	}
	return zerolog.New(out).Level(level).With().Timestamp().Logger()
}

// OpenAtOnce opens a file or a pipe, such as that of <(…), without waiting for a writer. A FIFO without a writer reads
// as empty.
func OpenAtOnce(path string) (io.ReadCloser, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// The exit codes. docs/daily-work.md documents them.
const (
	ExitOK         = 0 // all hosts answered
	ExitFailed     = 1 // wrong usage or configuration: nothing was done
	ExitSomeFailed = 3 // some hosts failed
	ExitNoneLeft   = 4 // no host answered
	ExitHeld       = 5 // safety limits held actions back; the rest was done
	ExitUnrecorded = 6 // the record could not be kept
	ExitReplaced   = 7 // another controller took the place of this one
	// ExitWork, with --exit-code, means that a dry run found something to do. It isn't 2, the code of a Go program that
	// crashes.
	ExitWork = 10
	ExitLate = 75 // --wait timed out: EX_TEMPFAIL of sysexits(3)
)

// ExitError carries an exit code; Err is nil if nothing is left to print.
type ExitError struct {
	Code int
	Err  error
	Flag string // the wrong flag; empty if unknown
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// UsageError returns an error in what the user wrote; nothing has been done.
func UsageError(format string, args ...any) error {
	return &ExitError{Code: ExitFailed, Err: fmt.Errorf(format, args...)}
}

// WrongFlag returns an error about the value of a flag; the format continues "--flag".
func WrongFlag(flag, format string, args ...any) error {
	return &ExitError{Code: ExitFailed, Flag: flag, Err: fmt.Errorf("--"+flag+format, args...)}
}

// ExitCode is the exit code of a command with this error.
func ExitCode(err error) int {
	if exit, ok := errors.AsType[*ExitError](err); ok {
		return exit.Code
	}
	if err != nil {
		return ExitFailed
	}
	return ExitOK
}

// FleetExit is the exit code of work on several hosts. A host that was stopped, by -e or Ctrl-C, did not fail to
// answer, and one that refused an installation has answered.
func FleetExit(failures []remote.Failure, answered int) error {
	spoke := func(f remote.Failure) bool { return f.Class == remote.Cancelled || f.Class == remote.InstallRefused }
	switch {
	case len(failures) == 0:
		return nil
	case answered > 0 || slices.ContainsFunc(failures, spoke):
		return &ExitError{Code: ExitSomeFailed}
	}
	return &ExitError{Code: ExitNoneLeft}
}

func init() { cli.HelpPrinter = printHelp }

// Commands makes the commands of the program. If one is named, the others may lack their subcommands, since making all
// takes time.
type Commands func(p Program, named string) []*cli.Command

// Run runs a command line, which begins with the program's name, and returns the exit code.
func Run(ctx context.Context, p Program, commands Commands, args []string) int {
	app := build(p, commands, named(args))
	line, err := Arrange(app, args)
	if err == nil {
		err = app.RunContext(ctx, line)
	}
	if exit, ok := errors.AsType[*ExitError](err); err != nil && !(ok && exit.Err == nil) {
		fmt.Fprintln(p.Err, "genv:", text.PrintableLines(text.Late(err, 0).Error()))
	}
	return ExitCode(err)
}

// named is empty if all commands may be needed.
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
	if named != versionName { // programs call it often
		made = commands(p, named)
	}
	app := &cli.App{
		Name: "genv", Usage: "GPU environments on shared machines, and their enforcement on a fleet",
		Version:                   p.Version,
		Reader:                    p.In,
		Writer:                    p.Out,
		ErrWriter:                 p.Err,
		DisableSliceFlagSeparator: true,                     // gpu[1,3] has a comma too
		Flags:                     []cli.Flag{cli.HelpFlag}, // the command help would replace it
		HideHelpCommand:           true,
		OnUsageError:              FlagError,
		Action:                    RefuseUnknown,
		ExitErrHandler:            func(*cli.Context, error) {}, // Run decides
		Commands: append(made, versionCommand(p), helpCommand(made), manCommand(root), completionCommand(p),
			completeCommand(p, root)),
	}
	for _, cmd := range app.Commands {
		prepare(p, commands, cmd, cmd.Category == Configured, cmd.Name == remoteSection)
	}
	return app
}

// prepare makes every command report errors in one line, refuse unknown words, and read the configuration if it is
// configured. Accountable commands become the controller's account.
func prepare(p Program, commands Commands, cmd *cli.Command, configured, accountable bool) {
	cmd.OnUsageError = FlagError
	cmd.HideHelpCommand = true
	asAccount := accountable && cmd.Category != Personal || cmd.Category == AsAccount
	cmd.Action = checked(p, commands, cmd.Action, configured, asAccount)
	for _, sub := range cmd.Subcommands {
		prepare(p, commands, sub, configured, accountable)
	}
}

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

// VersionDocument is the JSON of `genv version`.
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
