package user

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// activateOptions are the flags of `genv activate`, some of them also of `genv run` and `genv llm serve`.
type activateOptions struct {
	environment.SettingFlags
	waitOptions
	id                         string
	noPrompt, noAttach, noLoad bool
	shell                      string
}

func (p *userCommands) activateCommand() *cli.Command {
	o := new(activateOptions)
	return &cli.Command{
		Name: "activate", Usage: "activate an environment in this shell",
		Flags: append(o.Flags(),
			command.String(&o.id, "id,eid", "enter the existing environment with this `ID`, as from another terminal"),
			command.Bool(&o.noPrompt, "no-prompt", "leave the shell's prompt as it is"),
			command.Bool(&o.noAttach, "no-attach", "attach no GPUs yet"),
			command.Bool(&o.noLoad, "no-load", "don't load the configuration from the folder that genv home prints"),
			shellFlag(&o.shell), o.OverSubscribeFlag(), o.waitFlag(),
		),
		Action: p.outsideContainers(func(c *cli.Context) error { return p.activate(c, o) }),
	}
}

func (p *userCommands) activate(c *cli.Context, o *activateOptions) error {
	who := p.person()
	caller, err := p.callerOf(o.shell, who, p.shims)
	if err != nil {
		return err
	}
	if who.eid != "" {
		if files, err := who.StateFiles(c.Context); err == nil && files.Environment(who.eid) == nil {
			return errEnded(who.eid)
		}
		return errActive
	}
	entry, err := p.newEntry(c, o, caller.PID)
	if err != nil {
		return err
	}
	entered, others, err := o.change(c, p, who, change.Change{Enter: &entry})
	if err != nil {
		return err
	}
	if err := caller.Apply(shell.Activate(p.visible(who, &entered), o.noPrompt)); err != nil {
		if _, left := who.Change(c.Context, change.Change{Leave: &change.Leave{PID: caller.PID}}); left != nil {
			return fmt.Errorf("%w; and the environment is still registered: %w", err, left)
		}
		return err
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

// newEntry loads the saved configuration for a new environment only.
func (p *userCommands) newEntry(c *cli.Context, o *activateOptions, pid snapshot.PID) (e change.Enter, err error) {
	e = change.Enter{EID: snapshot.EnvID(o.id), PID: pid, Attach: !o.noAttach, OverSubscribe: o.OverSubscribe(p.Getenv)}
	if dir, noHome := p.home(); noHome == nil && !c.IsSet("id") && !o.noLoad {
		err = loadSettings(dir, &e.Config, environment.Settings)
	}
	if err == nil {
		err = o.Read(c, &e.Config)
	}
	if err == nil && o.wait && e.Config.GPUs == nil {
		err = command.WrongFlag("wait", ": say for how many GPUs, as with --gpus 2")
	}
	return e, err
}

func (p *userCommands) deactivateCommand() *cli.Command {
	old := ""
	return &cli.Command{
		Name: "deactivate", Usage: "leave the environment, which ends with its last process",
		Flags:  []cli.Flag{shellFlag(&old)},
		Action: p.outsideContainers(func(c *cli.Context) error { return p.deactivate(c, old) }),
	}
}

// deactivate also removes the variables of a shell whose environment has ended, and works in a registered shell that
// has lost them.
func (p *userCommands) deactivate(c *cli.Context, old string) error {
	who := p.person()
	_, inactive := who.active(c.Context)
	caller, err := p.callerOf(old, who, func() string { return "" })
	if errors.Is(inactive, errNotActive) && err == nil {
		var files state.Files
		if files, err = who.StateFiles(c.Context); err != nil || files.EnvironmentOf(caller.PID) != nil {
			inactive = nil
		}
	}
	if err := cmp.Or(inactive, err); err != nil {
		return err
	}
	if err := p.leave(c.Context, who, change.Leave{PID: caller.PID, Own: true}); err != nil {
		return err
	}
	return caller.Apply(shell.Deactivate())
}

// leave also warns of the remaining processes.
func (p *userCommands) leave(ctx context.Context, who *hostUser, l change.Leave) error {
	left, err := who.Change(ctx, change.Change{Leave: &l})
	var names []string
	for _, pid := range left.Remaining {
		name := fmt.Sprint(pid)
		if stat, err := who.Machine.Proc.Stat(pid); err == nil { // visible to this user
			name += " (" + text.Shown(stat.Name) + ")"
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		p.Warnf("Environment %s and its GPUs remain until its processes end: %s",
			text.Shown(string(left.EID)), strings.Join(names, ", "))
	}
	return err
}
