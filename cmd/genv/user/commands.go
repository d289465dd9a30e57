// Package user has the commands that people run on a GPU host, and the shims of nvidia-smi and docker.
package user

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

type userCommands struct{ command.Program }

// Commands returns the commands for people.
func Commands(with command.Program) []*cli.Command {
	p := &userCommands{with}
	commands := []*cli.Command{
		p.activateCommand(), p.deactivateCommand(), p.attachCommand(), p.detachCommand(), p.configCommand(),
		p.homeCommand(), p.statusCommand(), p.dockerCommand(), p.lockCommand(), p.runCommand(), p.llmCommand(),
		p.devicesCommand(), p.envsCommand(), p.shellCommand(),
	}
	p.printPlainErrors(commands)
	return append(commands, p.noticesCommand(), p.historyCommand(), p.whyCommand(), p.reserveCommand())
}

func (p *userCommands) outsideContainers(action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := localhost.CheckContained(p.Getenv); err != nil {
			return err
		}
		return action(c)
	}
}

// printPlainErrors prints errors as 1.4.3 does, without "genv:".
func (p *userCommands) printPlainErrors(commands []*cli.Command) {
	for _, cmd := range commands {
		action := cmd.Action
		cmd.Action = func(c *cli.Context) error {
			err := action(c)
			if _, ok := errors.AsType[*command.ExitError](err); ok || err == nil {
				return err
			}
			fmt.Fprintln(p.Err, text.PrintableLines(advised(err)))
			return &command.ExitError{Code: command.ExitFailed}
		}
		p.printPlainErrors(cmd.Subcommands)
	}
}

// readIndices returns nil without --index.
func readIndices(c *cli.Context, written string) ([]snapshot.DeviceIndex, error) {
	if !c.IsSet("index") {
		return nil, nil
	}
	list, err := text.ParseIndices[snapshot.DeviceIndex](written)
	if err != nil {
		return nil, command.WrongFlag("index", " %q: write indices such as 0 or 0,2; `genv gpus` lists them", written)
	}
	return list, nil
}

func shellFlag(to *string) cli.Flag {
	return command.String(to, "shell", "answer the shell with this `PID`, which genv 1.4.3 initialised, on stdout")
}

type stateOptions struct {
	render.Output
	noCleanup, reset bool
}

func (o *stateOptions) listFlags() []cli.Flag {
	return slices.Concat(command.OutputFlags(&o.Output), []cli.Flag{command.TimestampFlag(&o.Output)}, o.fileFlags())
}

func (o *stateOptions) fileFlags() []cli.Flag {
	return []cli.Flag{
		command.Bool(&o.noCleanup, "no-cleanup", "show what has ended too, and change nothing"),
		command.Bool(&o.reset, "reset", "clear the state file first (only root may)"),
	}
}

// clear clears the state file of all users for --reset; this host's devices remain.
func (o *stateOptions) clear(ctx context.Context, who *hostUser, file state.File) (err error) {
	switch {
	case !o.reset:
		return nil
	case who.uid != 0:
		return errors.New("--reset clears the state of all users: only root may, with sudo")
	}
	var found []snapshot.Device
	if file == state.Devices {
		found, err = who.Machine.ListDevices(ctx)
	}
	if err == nil {
		err = who.Store.Reset(ctx, file, found...)
	}
	return err
}

type hostUser struct {
	*localhost.Host
	uid    snapshot.UID   // of the account
	eid    snapshot.EnvID // as the shell claims; empty for none
	sudoed bool           // directly or not
}

func (p *userCommands) person() *hostUser {
	here := localhost.Open(p.Program)
	return &hostUser{
		Host:   here,
		uid:    here.UID(context.Background()),
		eid:    snapshot.EnvID(p.Getenv("GENV_ENVIRONMENT_ID")),
		sudoed: p.Getenv("SUDO_UID") != "",
	}
}

// active is the environment of this shell. sudo drops its variable, but an ancestor may show that there is one.
func (w *hostUser) active(ctx context.Context) (snapshot.EnvID, error) {
	switch {
	case w.eid != "":
		return w.eid, nil
	case !w.sudoed:
		return "", errNotActive
	}
	files, err := w.StateFiles(ctx)
	if err != nil {
		return "", err
	}
	parents, err := w.Machine.Proc.Ancestors(snapshot.PID(os.Getpid()))
	if err != nil {
		return "", errNotActive // this user sees none
	}
	for _, parent := range parents {
		if env := files.EnvironmentOf(parent.PID); env != nil {
			return "", fmt.Errorf("sudo hides that this shell is in environment %s: "+
				"run `sudo -E env PATH=$PATH genv …` instead", text.Shown(string(env.EID)))
		}
	}
	return "", errNotActive
}

// here is the environment of this shell, with the state files. Only its user and root may use its ID.
func (w *hostUser) here(ctx context.Context) (files state.Files, env *snapshot.Environment, err error) {
	eid, err := w.active(ctx)
	if err == nil {
		files, err = w.StateFiles(ctx)
	}
	if err == nil {
		env, err = w.mine(&files, eid)
	}
	return files, env, err
}

func (p *userCommands) caller(who *hostUser) (shell.Caller, error) {
	caller, err := shell.CallerFrom(p.Getenv)
	if err != nil && who.sudoed && who.eid != "" {
		err = errors.New("sudo can't change this shell: run it without sudo, " +
			"or `genv devices attach` with sudo and then `genv attach --refresh` without")
	}
	return caller, err
}

// callerOf is the shell of --shell, which 1.4.3 initialised without the folder of the shims, or else caller.
func (p *userCommands) callerOf(shell143 string, who *hostUser, shims func() string) (shell.Caller, error) {
	if shell143 != "" {
		return shell.Shell143{Environ: p.Getenv, Shims: shims()}.Caller(shell143, p.Out)
	}
	caller, err := p.caller(who)
	name := p.callingShell()
	if errors.Is(err, shell.ErrNotInitialised) && slices.Contains([]string{"fish", "tcsh", "csh"}, name) {
		_, err = shell.ParseKind(name) // the advice of ErrNotInitialised fails there
	}
	return caller, err
}

func (w *hostUser) mine(b *state.Files, eid snapshot.EnvID) (*snapshot.Environment, error) {
	return b.Environment(eid), w.ended(eid, b.CheckOwner(eid, w.uid))
}

func (w *hostUser) changeIn(ctx context.Context, eid snapshot.EnvID, c change.Change) (change.Result, error) {
	result, err := w.Change(ctx, c)
	return result, w.ended(eid, err)
}

func (w *hostUser) ended(eid snapshot.EnvID, err error) error {
	if errors.Is(err, state.ErrNoEnvironment) && eid == w.eid {
		err = errEnded(eid)
	}
	return err
}

func (w *hostUser) named(c *cli.Context, eid string) (snapshot.EnvID, error) {
	if !c.IsSet("eid") {
		return w.active(c.Context)
	}
	if err := snapshot.CheckText("--eid", eid); err != nil || eid == "" {
		return "", command.WrongFlag("eid", " %q is not an environment ID: `genv envs` lists them", eid)
	}
	return snapshot.EnvID(eid), nil
}

func owner(uid snapshot.UID, name string) string {
	if name == "" {
		return fmt.Sprint(uid)
	}
	return fmt.Sprintf("%s(%d)", name, uid)
}

func shownOwner(e *snapshot.Environment) string {
	if e.Username == "" {
		return owner(e.UID, "")
	}
	return owner(e.UID, text.Shown(string(e.Username)))
}

var (
	errNotActive = errors.New("Not running in an active environment")     //nolint:staticcheck // 1.4.3's words
	errActive    = errors.New("Already running in an active environment") //nolint:staticcheck // 1.4.3's words
)

// errEnded is for reset state files, or after the end of all registered processes.
func errEnded(eid snapshot.EnvID) error {
	const ended = "Environment %s of this shell has ended: run `genv deactivate`, and then `genv activate`"
	return fmt.Errorf(ended, text.Shown(string(eid))) //nolint:staticcheck // as 1.4.3's words above
}

// advised is the text of an error with its next step, and below it the environments that have the refused GPUs.
func advised(err error) string {
	for _, advice := range []struct {
		step   string
		causes []error
	}{
		{"nothing was changed: make room there, then run it again", []error{unix.ENOSPC, unix.EDQUOT}},
		{"nothing was changed: remount it read-write, or set GENV_TMPDIR on the whole host", []error{unix.EROFS}},
		{"genv can't attach GPUs until then", []error{nvidiasmi.ErrNoDevices}},
	} {
		if slices.ContainsFunc(advice.causes, func(cause error) bool { return errors.Is(err, cause) }) {
			return text.OneLine(err.Error()) + "; " + advice.step
		}
	}
	if unavailable, ok := errors.AsType[*state.UnavailableError](err); ok && len(unavailable.Conflicts) > 0 {
		const most = 16
		lines := []string{err.Error()}
		for _, holder := range unavailable.Conflicts[:min(most, len(unavailable.Conflicts))] {
			lines = append(lines, holder.String())
		}
		if more := len(unavailable.Conflicts) - most; more > 0 {
			lines = append(lines, fmt.Sprintf("and %d more; `genv gpus` lists them", more))
		}
		return strings.Join(lines, "\n    ")
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(path, fs.ErrPermission) {
		return text.OneLine(err.Error()) + "; ask its owner or root, or set GENV_TMPDIR on the whole host"
	}
	return err.Error()
}
