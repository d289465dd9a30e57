package user

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

func (p *userCommands) runCommand() *cli.Command {
	o := new(activateOptions)
	quiet := false
	return &cli.Command{
		Name:      "run",
		Usage:     "run a command in an environment of its own, which ends with it; for cron, at, scripts and systemd",
		ArgsUsage: "COMMAND [ARGUMENT…]",
		Flags: append(o.Flags(), o.OverSubscribeFlag(), o.waitFlag(),
			command.Bool(&quiet, "quiet,q", "don't print its GPUs")),
		Action: p.outsideContainers(func(c *cli.Context) error {
			if c.NArg() == 0 {
				return command.UsageError("missing command: write `genv run COMMAND`")
			}
			return p.run(c, o, envCommand{words: c.Args().Slice(), quiet: quiet})
		}),
	}
}

type envCommand struct {
	words      []string
	name       string                // of the environment; overrides --name
	environ    []string              // additional variables
	quiet      bool                  // don't print its GPUs
	background func(context.Context) // runs as long as the command; nil for none
}

// run registers this process, so it needs no shell. If it is killed, the environment lasts until the command ends.
func (p *userCommands) run(c *cli.Context, o *activateOptions, j envCommand) error {
	words := j.words
	if _, err := exec.LookPath(words[0]); err != nil {
		return p.notStarted("run", err) // before anything is registered
	}
	who := p.person()
	var signals chan os.Signal
	if !o.wait { // else signals end the wait
		signals = command.PassedOn(syscall.SIGCONT)
	}
	active, err := p.runEntry(c, o, who, j)
	if o.wait {
		signals = command.PassedOn(syscall.SIGCONT)
	}
	defer signal.Stop(signals)
	if err != nil {
		return err
	}
	shims, environ := p.runEnviron(active)
	cmd := exec.Command(words[0], words[1:]...)
	if shim, ok := shell.Shim(words[0]); ok && shim == words[0] && shims != "" {
		cmd.Path, cmd.Err = filepath.Join(shims, shim), nil
	}
	cmd.Env = slices.Concat(environ, j.environ)
	ctx, cancel := context.WithCancel(c.Context)
	var background sync.WaitGroup
	if j.background != nil {
		background.Go(func() { j.background(ctx) })
	}
	status := p.supervise("run", cmd, signals)
	cancel()
	background.Wait()
	ctx, cancel = context.WithTimeout(context.WithoutCancel(c.Context), 30*time.Second)
	defer cancel()
	if err := p.leave(ctx, who, change.Leave{PID: snapshot.PID(os.Getpid())}); err != nil {
		p.Warnf("environment %s is still registered: %v; the next genv command removes it", active.EID, err)
	}
	return status
}

func (p *userCommands) runEntry(c *cli.Context, o *activateOptions, who *hostUser, j envCommand) (shell.Active, error) {
	e, err := p.newEntry(c, o, snapshot.PID(os.Getpid()))
	if err != nil {
		return shell.Active{}, err
	}
	e.Whole, e.Config.Name = true, cmp.Or(j.name, e.Config.Name)
	entered, others, err := o.change(c, p, who, change.Change{Enter: &e})
	if err != nil {
		return shell.Active{}, err
	}
	if !j.quiet {
		p.reportAttached(c.Context, who, others, nil, entered.Now)
	}
	return p.visible(who, &entered), nil
}

// runEnviron is an activated shell's environment, with the shims first in PATH.
func (p *userCommands) runEnviron(active shell.Active) (shims string, environ []string) {
	change := shell.Activate(active, true)
	environ = slices.DeleteFunc(os.Environ(), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(change.Unset, name)
	})
	for _, v := range change.Set { // the last value counts
		environ = append(environ, v.Name+"="+v.Value)
	}
	if shims = p.shims(); shims != "" {
		folders := slices.DeleteFunc(filepath.SplitList(p.Getenv("PATH")), func(f string) bool { return f == shims })
		path := strings.Join(append([]string{shims}, folders...), string(filepath.ListSeparator))
		environ = append(environ, "PATH="+path)
	}
	return shims, environ
}

// Exit statuses of commands that can't be run: bash(1), "EXIT STATUS".
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// supervise forwards signals. Its error has the exit status. name is the genv command.
func (p *userCommands) supervise(name string, cmd *exec.Cmd, signals <-chan os.Signal) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.In, p.Out, p.Err
	if err := cmd.Start(); err != nil {
		return p.notStarted(name, err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			forward(cmd.Process, s)
		case err := <-done:
			if ended, ok := errors.AsType[*exec.ExitError](err); ok {
				return &command.ExitError{Code: shell.ExitStatus(ended.ProcessState)}
			}
			return err
		}
	}
}

// notStarted returns env(1)'s exit status.
func (p *userCommands) notStarted(name string, err error) error {
	p.Warn("genv " + name + ": " + err.Error())
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return &command.ExitError{Code: exitNotFound}
	}
	return &command.ExitError{Code: exitNotExecutable}
}

// forward sends a signal to a command, unless the terminal did. SIGTSTP also stops this process, so that the shell
// notices.
func forward(command *os.Process, s os.Signal) {
	if !fromTerminal(s) {
		_ = command.Signal(s) // an error means that it has ended
	}
	if s == syscall.SIGTSTP && continuable() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // Go can't restore a signal's own action
	}
}

// continuable reports whether a shell can continue this job. SIGTSTP doesn't stop orphaned groups (setpgid(2)).
func continuable() bool {
	ancestors, err := proc.FS{}.Ancestors(snapshot.PID(os.Getpid()))
	if err != nil {
		return false
	}
	for _, a := range ancestors {
		if group, err := unix.Getpgid(int(a.PID)); err != nil || group != unix.Getpgrp() {
			theirs, err := unix.Getsid(int(a.PID))
			own, ownErr := unix.Getsid(0)
			return err == nil && ownErr == nil && theirs == own
		}
	}
	return false
}

// fromTerminal reports whether the terminal sends a signal to all foreground processes. Many programs stop at once on a
// second Ctrl-C.
func fromTerminal(s os.Signal) bool {
	if s != syscall.SIGINT && s != syscall.SIGQUIT && s != syscall.SIGTSTP {
		return false
	}
	terminal, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return false // no terminal
	}
	defer terminal.Close()
	foreground, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

func (p *userCommands) lockCommand() *cli.Command {
	return &cli.Command{
		Name: "lock", Usage: "run a command, or only wait, while no other `genv lock` uses this environment's GPUs",
		ArgsUsage:       "[COMMAND [ARGUMENT…]]",
		SkipFlagParsing: true, // the rest is the command line
		Action:          p.lock,
	}
}

func (p *userCommands) lock(c *cli.Context) error {
	words := c.Args().Slice()
	switch {
	case len(words) == 1 && (words[0] == "--help" || words[0] == "-h"):
		return cli.ShowSubcommandHelp(c)
	case len(words) > 0 && words[0] == "--":
		words = words[1:]
	}
	who := p.person()
	var devices []snapshot.DeviceIndex
	files, env, err := who.here(c.Context)
	if err == nil {
		devices = files.AttachedTo(env.EID)
	}
	owned, ownedErr := who.Store.OwnedDir()
	notActive := errors.Is(err, errNotActive)
	switch {
	case ownedErr != nil:
		return ownedErr
	case owned != "" && (notActive || err == nil && len(devices) == 0):
		return errors.New("no GPU is locked, and the command was not run: this shell has no GPU; run `genv attach`")
	case notActive:
		fmt.Fprintln(p.Err, "genv: no GPU is locked: this shell is in no environment; run `genv activate` first")
	case err != nil:
		return err
	}
	if len(devices) > 0 {
		release, err := p.lockDevices(c.Context, who, devices, &files)
		if err != nil {
			return err
		}
		defer release()
	}
	if len(words) == 0 { // only waited for the locks
		return nil
	}
	signals := command.PassedOn(syscall.SIGCONT)
	defer signal.Stop(signals)
	return p.supervise("lock", exec.Command(words[0], words[1:]...), signals)
}

func (p *userCommands) lockDevices(
	ctx context.Context, who *hostUser, devices []snapshot.DeviceIndex, files *state.Files,
) (release func(), err error) {
	soon, cancel := context.WithTimeout(ctx, 2*time.Second) // after that, the user learns who has the lock
	defer cancel()
	release, err = who.Store.LockDevices(soon, devices)
	busy, ok := errors.AsType[*disk.BusyError](err)
	if !ok || ctx.Err() != nil {
		return release, err
	}
	holder := "a process that can't be seen from here"
	if busy.Holder != nil {
		holder = busy.Holder.String()
		if isStranger(files, filepath.Base(busy.Path), busy.Holder.UID) {
			holder += ", to whom the GPU is not attached"
		}
	}
	p.Warnf("genv: waiting for %s, which is locked by %s", busy.Path, holder)
	release, err = who.Store.LockDevices(ctx, devices)
	if again, ok := errors.AsType[*disk.BusyError](err); ok && again.Waited == 0 {
		return nil, busy // interrupted before the second attempt: the first one knows the holder
	}
	return release, err
}

// isStranger reports whether a user other than root locks a GPU that certainly isn't attached to that user.
func isStranger(files *state.Files, lock string, uid *snapshot.UID) bool {
	if uid == nil || *uid == 0 {
		return false
	}
	environments := snapshot.ByID(files.Environments)
	return !slices.ContainsFunc(files.Devices, func(d snapshot.Device) bool {
		return disk.LockOf(d.Index) == lock && slices.ContainsFunc(d.Attachments, func(a snapshot.Attachment) bool {
			env := environments[a.EID]
			return env != nil && env.UID == *uid
		})
	})
}
