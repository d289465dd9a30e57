package user

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (p *program) lockCommand() *cli.Command {
	return &cli.Command{
		Name:            "lock",
		Usage:           "run a command while no other `genv lock` uses this environment's devices",
		ArgsUsage:       "COMMAND [ARGUMENT…]",
		SkipFlagParsing: true, // all that follows is the command's
		Action:          p.withPlainErrors(p.lock),
	}
}

func (p *program) lock(c *cli.Context) error {
	words := c.Args().Slice()
	switch {
	case len(words) == 1 && (words[0] == "--help" || words[0] == "-h"):
		return cli.ShowSubcommandHelp(c)
	case len(words) > 0 && words[0] == "--":
		words = words[1:]
	}
	if len(words) == 0 {
		return command.UsageError("missing command: write `genv lock COMMAND`")
	}
	who := p.person()
	devices, err := who.lockable(c.Context)
	if errors.Is(err, errNotActive) {
		fmt.Fprintln(p.Err, "genv: no device is locked: this shell is in no environment; run `genv activate` first")
	} else if err != nil {
		return err
	}
	if len(devices) > 0 {
		release, err := p.lockDevices(c.Context, who, devices)
		if err != nil {
			return err
		}
		defer release()
	}
	signals, stop := receiveSignals()
	defer stop()
	return p.supervise("lock", exec.Command(words[0], words[1:]...), signals)
}

// silentWait is how long `genv lock` waits before it says so.
const silentWait = 2 * time.Second

// lockDevices waits as long as it takes, and prints which process has the lock.
func (p *program) lockDevices(ctx context.Context, who *person, devices []snapshot.DeviceIndex) (release func(), err error) {
	soon, cancel := context.WithTimeout(ctx, silentWait)
	defer cancel()
	release, err = who.Store.LockDevices(soon, devices)
	var busy *state.BusyError
	if !errors.As(err, &busy) || ctx.Err() != nil {
		return release, err
	}
	holder := "a process that can't be seen from here"
	if busy.Holder != nil {
		holder = busy.Holder.String()
	}
	fmt.Fprintln(p.Err, text.PrintableLines(fmt.Sprintf("genv: waiting for %s, which is held by %s", busy.Path, holder)))
	release, err = who.Store.LockDevices(ctx, devices)
	if again := (*state.BusyError)(nil); errors.As(err, &again) && again.Waited == 0 {
		return nil, busy // interrupted before the second attempt: the first one knows the holder
	}
	return release, err
}

// lockable are the devices of this shell's environment.
func (w *person) lockable(ctx context.Context) ([]snapshot.DeviceIndex, error) {
	eid, err := w.active(ctx)
	if err != nil {
		return nil, err
	}
	files, err := w.StateFiles(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := w.mine(&files, eid); err != nil {
		return nil, err
	}
	return files.AttachedTo(eid), nil
}

// The exit status of commands that a shell could not run: bash(1), "EXIT STATUS".
const (
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignalled     = 128 // and the signal's number
)

// forwardedSignals are those by which other programs control one.
var forwardedSignals = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGTSTP, syscall.SIGCONT,
}

// forward sends a signal to a command, unless the terminal has sent it already.
// SIGTSTP stops this process too, so that the shell sees the job as stopped.
func forward(command *os.Process, s os.Signal) {
	if !fromTerminal(s) {
		_ = command.Signal(s) // it may have ended meanwhile
	}
	if s == syscall.SIGTSTP && continuable() {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) // Go has no way back to a signal's own action
	}
}

// continuable says whether a shell can continue this job: its process group must not
// be orphaned. The kernel doesn't stop orphaned ones for SIGTSTP (setpgid(2)).
func continuable() bool {
	ancestors, err := proc.FS{}.Ancestors(snapshot.PID(os.Getpid()))
	if err != nil {
		return false
	}
	for _, pid := range ancestors {
		if group, err := unix.Getpgid(int(pid)); err != nil || group != unix.Getpgrp() {
			theirs, err := unix.Getsid(int(pid))
			own, ownErr := unix.Getsid(0)
			return err == nil && ownErr == nil && theirs == own
		}
	}
	return false
}

// fromTerminal says whether the terminal sends a signal to all its foreground
// processes. The command has received it then, and many programs take a second Ctrl-C
// as an order to stop at once.
func fromTerminal(s os.Signal) bool {
	if s != syscall.SIGINT && s != syscall.SIGQUIT && s != syscall.SIGTSTP {
		return false
	}
	terminal, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return false // there is none
	}
	defer terminal.Close()
	foreground, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

func statusOf(err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &exit):
		return err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return &command.ExitError{Code: exitSignalled + int(status.Signal())}
	}
	return &command.ExitError{Code: exit.ExitCode()}
}
