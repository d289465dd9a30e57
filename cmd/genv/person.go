package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// personCommands are what people type on a GPU host.
func (p *program) personCommands() []*cli.Command {
	return []*cli.Command{
		p.activateCommand(), p.deactivateCommand(), p.attachCommand(), p.detachCommand(),
		p.configCommand(), p.homeCommand(), p.statusCommand(), p.lockCommand(),
		p.devicesCommand(), p.envsCommand(), p.shellCommand(),
	}
}

// person is who types a command on a GPU host.
type person struct {
	*host
	uid    snapshot.UID   // the kernel's word on who asks; LOGNAME is only a claim
	eid    snapshot.EnvID // the environment that the shell claims to be in; empty for none
	sudoed bool
}

func (p *program) person() (*person, error) {
	host, err := p.openHost()
	if err != nil {
		return nil, err
	}
	return &person{
		host:   host,
		uid:    snapshot.UID(os.Getuid()),
		eid:    snapshot.EnvID(p.getenv("GENV_ENVIRONMENT_ID")),
		sudoed: os.Getuid() == 0 && p.getenv("SUDO_UID") != "",
	}, nil
}

// In the words of 1.4.3.
var (
	errNotActive = errors.New("Not running in an active environment")     //nolint:staticcheck // 1.4.3's words
	errActive    = errors.New("Already running in an active environment") //nolint:staticcheck // 1.4.3's words
)

// active is the environment in which the command was typed. sudo drops the
// variable that says so; then a parent tells that there is one all the same.
func (w *person) active(ctx context.Context) (snapshot.EnvID, error) {
	if w.eid != "" || !w.sudoed {
		return w.eid, w.notActive()
	}
	books, err := w.books(ctx)
	if err != nil {
		return "", err
	}
	parents, err := w.machine.Proc.Ancestors(snapshot.PID(os.Getpid()))
	if err != nil {
		return "", err
	}
	for _, pid := range parents {
		if env := books.EnvironmentOf(pid); env != nil {
			return "", fmt.Errorf("sudo keeps from genv that this shell is in environment %s: run `sudo -E env PATH=$PATH genv …` instead", env.EID)
		}
	}
	return "", errNotActive
}

func (w *person) notActive() error {
	if w.eid == "" {
		return errNotActive
	}
	return nil
}

// caller is the shell that is to be changed. Under sudo there is none, however
// well it was initialised.
func (p *program) caller(who *person) (shell.Caller, error) {
	caller, err := shell.CallerFrom(p.getenv)
	if err != nil && who.sudoed && who.eid != "" {
		err = errors.New("sudo cannot change the shell that this was typed in: run it without sudo, or `genv devices attach` with sudo and then `genv attach --refresh` without")
	}
	return caller, err
}

// mine is a registered environment that this user may change.
func (w *person) mine(b *state.Books, eid snapshot.EnvID) (*snapshot.Environment, error) {
	err := b.MayChange(eid, w.uid)
	if errors.Is(err, state.ErrNoEnvironment) && eid == w.eid {
		err = endedError{eid}
	}
	return b.Environment(eid), err
}

// endedError is a shell whose environment ended without it: the books were
// reset, or the shells that were registered in it have ended.
type endedError struct{ eid snapshot.EnvID }

func (e endedError) Error() string {
	return fmt.Sprintf("Environment %s of this shell has ended: run `genv deactivate`, and then `genv activate` for a new one", e.eid)
}

// books are the books without what is dead. A host whose devices are not
// registered yet has environments all the same.
func (h *host) books(ctx context.Context) (state.Books, error) {
	books, err := h.store.Read(ctx)
	if errors.Is(err, state.ErrNoDevices) {
		err = nil
	}
	return books, err
}

// update changes the books. Where that fails for want of devices, nvidia-smi is
// asked, without the lock, whether there are more than the books know.
func (h *host) update(ctx context.Context, change func(*state.Books) error) error {
	err := h.store.Update(ctx, change)
	var tooMany *state.TooManyError
	var none *state.NoDeviceError
	if !errors.Is(err, state.ErrNoDevices) && !errors.As(err, &tooMany) && !errors.As(err, &none) {
		return err
	}
	switch found, smiErr := h.machine.Found(ctx); {
	case smiErr != nil && errors.Is(err, state.ErrNoDevices):
		return smiErr
	case smiErr != nil:
		return err
	default:
		if _, err := h.store.Discover(ctx, found); err != nil {
			return err
		}
	}
	return h.store.Update(ctx, change)
}

// plainly has a command's errors printed as 1.4.3 does, in its words alone.
func (p *program) plainly(action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		err := action(c)
		var exit *exitError
		if err == nil || errors.As(err, &exit) {
			return err
		}
		fmt.Fprintln(p.err, printable(advised(err)))
		return &exitError{code: exitFailed}
	}
}

// advised is an error with the next step where the cause doesn't say it.
func advised(err error) string {
	for _, advice := range []struct {
		causes []error
		step   string
	}{
		{[]error{unix.ENOSPC, unix.EDQUOT}, "nothing was changed: make room there, then run it again"},
		{[]error{unix.EROFS}, "nothing was changed: remount it read-write, or set GENV_TMPDIR on the whole host"},
		{[]error{nvidiasmi.ErrNoDevices}, "genv can attach no device before that"},
	} {
		if slices.ContainsFunc(advice.causes, func(cause error) bool { return errors.Is(err, cause) }) {
			return oneLine(err.Error()) + "; " + advice.step
		}
	}
	var path *fs.PathError
	if errors.As(err, &path) && errors.Is(path, fs.ErrPermission) {
		return oneLine(err.Error()) + "; ask its owner or root to let you, or set GENV_TMPDIR on the whole host"
	}
	return err.Error()
}

// warn prints what was noticed and could be worked around.
func (p *program) warn(warnings []string) {
	for _, w := range warnings {
		fmt.Fprintln(p.err, printable(w))
	}
}

// rawBooks are the books as they stand in the files.
func (h *host) rawBooks(ctx context.Context) (state.Books, error) {
	books, err := h.store.ReadRaw(ctx)
	if errors.Is(err, state.ErrNoDevices) {
		err = nil
	}
	return books, err
}
