package user

import (
	"context"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// activateOptions is what the flags say of how to enter an environment: those of `genv activate`, and some of them
// those of `genv run` and `genv llm serve`.
type activateOptions struct {
	environment.SettingFlags
	waitOptions
	id                         string
	noPrompt, noAttach, noLoad bool
	shell                      string
}

func (p *program) activateCommand() *cli.Command {
	o := new(activateOptions)
	return &cli.Command{
		Name:  "activate",
		Usage: "activate an environment in this shell",
		Flags: append(o.Flags(),
			command.String(&o.id, "id,eid", "enter the existing environment with this `ID`, "+
				"for example from another terminal"),
			command.Bool(&o.noPrompt, "no-prompt", "leave the shell's prompt as it is"),
			command.Bool(&o.noAttach, "no-attach", "attach no GPUs yet"),
			command.Bool(&o.noLoad, "no-load", "don't load the configuration from the folder that genv home prints"),
			shellFlag(&o.shell),
			o.OverSubscribeFlag(),
			o.waitFlag(),
		),
		Action: p.outsideContainers(func(c *cli.Context) error { return p.activate(c, o) }),
	}
}

func (p *program) activate(c *cli.Context, o *activateOptions) error {
	who := p.person()
	caller, err := p.activationCaller(o.shell, who)
	if err != nil {
		return err
	}
	if who.eid != "" {
		return who.alreadyActive(c.Context)
	}
	entry, others, err := p.newEntry(c, o, who, caller.PID)
	if err != nil {
		return err
	}
	entered, err := o.change(c, p, who, change.Change{Enter: &entry})
	if err != nil {
		return err
	}
	if o.wait {
		others = p.inUseByOthers(c.Context, who, entered.EID, who.uid)
	}
	if err := caller.Apply(shell.Activate(p.visible(who, activeAfter(&entered)), o.noPrompt)); err != nil {
		return who.leave(c.Context, caller.PID, err)
	}
	p.reportAttached(c.Context, who, others, entered.Before, entered.Now)
	switch {
	case entered.Refused != "":
		p.Warn("No GPU was attached: " + text.Printable(entered.Refused))
	case len(entered.Now) == 0 && entry.Attach:
		p.Warn("No GPU is attached yet: genv attach attaches one, and genv attach --count 2 two")
	}
	return nil
}

// activationCaller is the shell to activate. One that 1.4.3 initialised doesn't know the folder of the shims.
func (p *program) activationCaller(old string, who *hostUser) (shell.Caller, error) {
	if old == "" {
		return shell.CallerFrom(p.Getenv)
	}
	exe, err := os.Executable()
	if err != nil {
		return shell.Caller{}, err
	}
	return p.callerOf(old, who, shell.Shell143{Environ: p.Getenv, Shims: p.shims(exe)})
}

func (w *hostUser) alreadyActive(ctx context.Context) error {
	files, err := w.StateFiles(ctx)
	if err == nil && files.Environment(w.eid) == nil {
		return errEnded(w.eid)
	}
	return errActive
}

// wanted is the saved configuration, overridden by the flags. An environment that is entered by its id has a
// configuration of its own.
func (p *program) wanted(c *cli.Context, o *activateOptions) (snapshot.EnvConfig, error) {
	var config snapshot.EnvConfig
	if dir, err := p.home(); err == nil && !c.IsSet("id") && !o.noLoad {
		if err := loadSettings(dir, &config, environment.Settings); err != nil {
			return config, err
		}
	}
	return config, o.Read(c, &config)
}

// newEntry is how a process enters the environment that the flags ask for, and what others use.
func (p *program) newEntry(
	c *cli.Context, o *activateOptions, who *hostUser, pid snapshot.PID,
) (e change.Enter, others inUse, err error) {
	e = change.Enter{EID: snapshot.EnvID(o.id), PID: pid, Attach: !o.noAttach, OverSubscribe: o.OverSubscribe(p.Getenv)}
	if e.Config, err = p.wanted(c, o); err != nil {
		return e, others, err
	}
	if o.wait && e.Config.GPUs == nil {
		return e, others, command.WrongFlag("wait", ": say for how many GPUs, as with --gpus 2")
	}
	if e.Attach && e.Config.GPUs != nil && !o.wait {
		uid, err := who.Machine.Proc.UID(pid)
		if err != nil {
			return e, others, err
		}
		others = p.inUseByOthers(c.Context, who, e.EID, uid)
		others.restrict(&e.Availability)
	}
	return e, others, nil
}

// leave undoes an activation that could not be applied to the shell.
func (w *hostUser) leave(ctx context.Context, pid snapshot.PID, cause error) error {
	if _, err := w.Change(ctx, change.Change{Leave: &change.Leave{PID: pid}}); err != nil {
		return fmt.Errorf("%w; and the environment is still registered: %w", cause, err)
	}
	return cause
}

func activeAfter(r *change.Result) shell.Active {
	return shell.Active{EID: r.EID, Config: r.Config, Devices: r.Now, Parts: r.Instances}
}

func activeOf(b *state.Files, eid snapshot.EnvID) shell.Active {
	return shell.Active{
		EID: eid, Config: b.Environment(eid).Config, Devices: b.AttachedTo(eid), Parts: change.Parts(b, eid),
	}
}
