package user

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
)

func (p *program) activateCommand() *cli.Command {
	return &cli.Command{
		Name:   "activate",
		Usage:  "give this shell an environment",
		Flags:  activationFlags(),
		Action: p.plainly(p.activate),
	}
}

// activationFlags are those of `genv activate`, here and on a host.
func activationFlags() []cli.Flag {
	return append(environment.SettingFlags(),
		&cli.StringFlag{Name: "id", Aliases: []string{"eid"}, Usage: "enter the environment of this `ID`, from another terminal for example"},
		&cli.BoolFlag{Name: "no-prompt", Usage: "leave the shell's prompt as it is"},
		&cli.BoolFlag{Name: "no-attach", Usage: "attach no devices yet"},
		environment.OverSubscribeFlag(),
	)
}

func (p *program) activate(c *cli.Context) error {
	if err := command.RefuseArguments(c); err != nil {
		return err
	}
	caller, err := shell.CallerFrom(p.Getenv)
	if err != nil {
		return err
	}
	who, err := p.person()
	if err != nil {
		return err
	}
	if who.eid != "" {
		return who.alreadyActive(c.Context)
	}
	a := state.Activation{EID: snapshot.EnvID(c.String("id")), PID: caller.PID, At: snapshot.DateOf(p.Now())}
	if a.Config, err = p.wanted(c); err != nil {
		return err
	}
	if err := who.identify(c.Context, &a); err != nil {
		return err
	}
	entry := entry{Activation: a, attach: !c.Bool("no-attach"), overSubscribe: environment.OverSubscribe(c, p.Getenv)}
	if entry.attach && a.Config.GPUs != nil {
		entry.others = who.inUseByOthers(c.Context, a.EID, a.UID)
	}
	active, err := who.enter(c.Context, &entry)
	if err != nil {
		return err
	}
	if err := caller.Apply(shell.Activate(active, c.Bool("no-prompt"))); err != nil {
		return who.leave(c.Context, a.PID, err)
	}
	p.gained(c.Context, entry.others, entry.before, active.Devices)
	return nil
}

func (w *person) alreadyActive(ctx context.Context) error {
	books, err := w.StateFiles(ctx)
	if err == nil && books.Environment(w.eid) == nil {
		return endedError{w.eid}
	}
	return errActive
}

// wanted is the configuration that was saved, and over it what the flags say.
// An environment that is entered by its id has its own.
func (p *program) wanted(c *cli.Context) (snapshot.EnvConfig, error) {
	var config snapshot.EnvConfig
	if dir, err := p.home(); err == nil && !c.IsSet("id") {
		if err := loadSettings(dir, &config, environment.Settings); err != nil {
			return config, err
		}
	}
	return config, environment.ReadSettings(c, &config)
}

// identify fills in who the process belongs to, by the kernel's word. Nobody
// but root puts another user's process into the state files.
func (w *person) identify(ctx context.Context, a *state.Activation) error {
	a.UID = w.uid
	if a.PID != 0 {
		owner, err := w.Machine.Proc.UID(a.PID)
		if err != nil {
			return err
		}
		if w.uid != 0 && owner != w.uid {
			return fmt.Errorf("%w: process %d belongs to uid %d: only that user and root may activate it", state.ErrNotOwner, a.PID, owner)
		}
		a.UID = owner
	}
	a.Username = state.Users{}.Username(ctx, a.UID)
	return nil
}

// entry is how a process enters an environment.
type entry struct {
	state.Activation
	attach, overSubscribe bool
	others                inUse
	before                []snapshot.DeviceIndex // what the environment had
}

// enter registers a process and attaches the devices that its configuration
// asks for: all of it or nothing. An environment that is there already has the
// devices that it has, unless more are asked for now.
func (w *person) enter(ctx context.Context, e *entry) (active shell.Active, err error) {
	err = w.Update(ctx, func(b *state.Files) error {
		a := e.Activation
		if a.EID == "" {
			a.EID = freeID(b, a.PID)
		}
		count := a.Config.GPUs
		e.before = b.AttachedTo(a.EID)
		if err := b.Activate(a); err != nil {
			return err
		}
		if e.attach && count != nil {
			if _, err := b.Attach(state.AttachRequest{
				EID: a.EID, Count: *count, Memory: b.Environment(a.EID).Config.GPUMemory,
				OverSubscribe: e.overSubscribe, Busy: e.others.devices(), At: a.At,
			}); err != nil {
				return err
			}
		}
		active = activeOf(b, a.EID)
		return nil
	})
	return active, err
}

// freeID is the process's PID, as in 1.4.3, unless an environment whose first
// shell had that PID has outlived it.
func freeID(b *state.Files, pid snapshot.PID) snapshot.EnvID {
	eid := snapshot.EnvID(fmt.Sprint(pid))
	for n := 2; b.Environment(eid) != nil; n++ {
		eid = snapshot.EnvID(fmt.Sprintf("%d-%d", pid, n))
	}
	return eid
}

// leave undoes an activation of which the shell could not be told.
func (w *person) leave(ctx context.Context, pid snapshot.PID, cause error) error {
	err := w.Store.Update(ctx, func(b *state.Files) error {
		b.Deactivate(pid)
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w; and the environment is still registered: %w", cause, err)
	}
	return cause
}

// activeOf is a registered environment as its shells know it.
func activeOf(b *state.Files, eid snapshot.EnvID) shell.Active {
	return shell.Active{EID: eid, Config: b.Environment(eid).Config, Devices: b.AttachedTo(eid)}
}
