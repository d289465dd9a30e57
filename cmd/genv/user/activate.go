package user

import (
	"context"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

func (p *program) activate(c *cli.Context) error {
	who := p.person()
	caller, err := p.activationCaller(c, who)
	if err != nil {
		return err
	}
	if who.eid != "" {
		return who.alreadyActive(c.Context)
	}
	entry, err := p.newEntry(c, who, caller.PID)
	if err != nil {
		return err
	}
	active, err := who.enter(c.Context, &entry)
	if err != nil {
		return err
	}
	if err := caller.Apply(shell.Activate(active, c.Bool("no-prompt"))); err != nil {
		return who.leave(c.Context, caller.PID, err)
	}
	p.reportAttached(c.Context, entry.others, entry.before, active.Devices)
	return nil
}

// activationCaller is the shell to activate. One that 1.4.3 initialised doesn't know the
// folder of the shims.
func (p *program) activationCaller(c *cli.Context, who *person) (shell.Caller, error) {
	if !c.IsSet("shell") {
		return shell.CallerFrom(p.Getenv)
	}
	exe, err := os.Executable()
	if err != nil {
		return shell.Caller{}, err
	}
	return p.callerOf(c, who, shell.Shell143{Environ: p.Getenv, Shims: p.shims(exe)})
}

func (w *person) alreadyActive(ctx context.Context) error {
	files, err := w.StateFiles(ctx)
	if err == nil && files.Environment(w.eid) == nil {
		return endedError{w.eid}
	}
	return errActive
}

// wanted is the saved configuration, overridden by the flags. An environment that is
// entered by its id has a configuration of its own.
func (p *program) wanted(c *cli.Context) (snapshot.EnvConfig, error) {
	var config snapshot.EnvConfig
	if dir, err := p.home(); err == nil && !c.IsSet("id") && !c.Bool("no-load") {
		if err := loadSettings(dir, &config, environment.Settings); err != nil {
			return config, err
		}
	}
	return config, environment.ReadSettings(c, &config)
}

// identify fills in the owner of the process, as reported by the kernel. Only root
// may register another user's process.
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
	a.Username = disk.Users{}.Username(ctx, a.UID)
	return nil
}

// entry is how a process enters an environment.
type entry struct {
	state.Activation
	attach, overSubscribe bool
	others                inUse
	before                []snapshot.DeviceIndex // what the environment had
}

// newEntry is how a process enters the environment that the flags ask for.
func (p *program) newEntry(c *cli.Context, who *person, pid snapshot.PID) (entry, error) {
	e := entry{
		Activation:    state.Activation{EID: snapshot.EnvID(c.String("id")), PID: pid, At: snapshot.DateOf(p.Now())},
		attach:        !c.Bool("no-attach"),
		overSubscribe: environment.OverSubscribe(c, p.Getenv),
	}
	var err error
	if e.Config, err = p.wanted(c); err != nil {
		return e, err
	}
	if err := who.identify(c.Context, &e.Activation); err != nil {
		return e, err
	}
	if e.attach && e.Config.GPUs != nil {
		e.others = who.inUseByOthers(c.Context, e.EID, e.UID)
	}
	return e, nil
}

// enter registers a process and attaches the devices that its configuration asks
// for: both or neither. An existing environment keeps its devices, unless more are
// asked for now.
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

// freeID is the PID, as in 1.4.3, unless there still is an environment that an
// earlier process with this PID began.
func freeID(b *state.Files, pid snapshot.PID) snapshot.EnvID {
	eid := snapshot.EnvID(fmt.Sprint(pid))
	for n := 2; b.Environment(eid) != nil; n++ {
		eid = snapshot.EnvID(fmt.Sprintf("%d-%d", pid, n))
	}
	return eid
}

// leave undoes an activation that could not be applied to the shell.
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

// activeOf is a registered environment, for its shells.
func activeOf(b *state.Files, eid snapshot.EnvID) shell.Active {
	return shell.Active{EID: eid, Config: b.Environment(eid).Config, Devices: b.AttachedTo(eid)}
}
