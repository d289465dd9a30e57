package user

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/change"
)

type attachOptions struct {
	environment.SettingFlags
	waitOptions
	count, index, mig string
	config, refresh   bool
}

func (p *program) attachCommand() *cli.Command {
	o := new(attachOptions)
	return &cli.Command{
		Name:  "attach",
		Usage: "attach GPUs to this environment: as many as are configured, or one",
		Flags: append(o.flags(),
			o.waitFlag(),
			command.Bool(&o.config, "config", "attach as many as are configured, and none if no number is"),
			command.Bool(&o.refresh, "refresh",
				"attach nothing; update this shell after another terminal attached or detached GPUs")),
		Action: p.outsideContainers(func(c *cli.Context) error { return p.attach(c, o) }),
	}
}

func (o *attachOptions) flags() []cli.Flag {
	return []cli.Flag{
		command.String(&o.count, "count", "attach GPUs until there are `N` in all"),
		command.String(&o.index, "index", "attach these GPUs: `INDEX`, or several with commas"),
		command.String(&o.mig, "mig", "attach this MIG `INSTANCE`, or several with commas: a UUID, "+
			"or a profile such as 1g.10gb for any free one"),
		o.OverSubscribeFlag(),
	}
}

// request is what is to be attached, and by how many of the flags that exclude each other it is said.
func (o *attachOptions) request(c *cli.Context, getenv func(string) string) (r change.Attach, given int, err error) {
	r.OverSubscribe, r.Configured = o.OverSubscribe(getenv), o.config
	for _, name := range []string{"count", "index", "mig"} {
		if c.IsSet(name) {
			given++
		}
	}
	if c.IsSet("count") {
		r.Count, err = strconv.Atoi(o.count)
		if err != nil || r.Count < 1 {
			return r, given, command.WrongFlag("count", " %q: write how many GPUs you need in all, 1 or more", o.count)
		}
	}
	if r.Indices, err = readIndices(c, o.index); err == nil && given > 1 {
		err = command.WrongFlag("count", ", --index and --mig exclude each other")
	}
	return r, given, err
}

func (p *program) attach(c *cli.Context, o *attachOptions) error {
	request, given, err := o.request(c, p.Getenv)
	who := p.person()
	switch {
	case err != nil:
		return err
	case o.refresh && (given > 0 || o.config):
		return command.WrongFlag("refresh", " attaches nothing: leave out --config, --count, --index and --mig")
	case o.refresh:
		_, err := p.inShell(c.Context, who, who.look)
		return err
	case o.config && given > 0:
		return command.WrongFlag("config", " attaches as many as are configured: leave out --count, --index and --mig")
	}
	var others inUse
	result, err := p.inShell(c.Context, who, func(_ context.Context, eid snapshot.EnvID) (r change.Result, err error) {
		request.EID = eid
		if request.Instances, err = who.instances(c, o.mig, eid); err != nil {
			return r, err
		}
		r, others, err = o.change(c, p, who, change.Change{Attach: &request})
		return r, who.ended(eid, err)
	})
	switch n := len(result.Now); {
	case err != nil:
		return err
	case n > 0 && !request.Configured && request.Instances == nil && slices.Equal(result.Before, result.Now):
		p.Warn(fmt.Sprintf("You have %d already, %s; --count %d for one more", n, others.named(result.Now), n+1))
	default:
		p.reportAttached(c.Context, who, others, result.Before, result.Now)
	}
	return nil
}

// look is the environment as it is.
func (w *hostUser) look(ctx context.Context, eid snapshot.EnvID) (change.Result, error) {
	files, env, err := w.here(ctx)
	if err != nil {
		return change.Result{}, err
	}
	renumbered := slices.ContainsFunc(files.Devices,
		func(d snapshot.Device) bool { return d.Unidentified && d.Attachment(eid) != nil })
	if renumbered { // root's genv learns that this shell knows the present indices
		refresh := &change.Attach{Refresh: true}
		refresh.EID = eid
		return w.changeIn(ctx, eid, change.Change{Attach: refresh})
	}
	attached := files.AttachedTo(eid)
	return change.Result{
		EID: eid, Config: env.Config, Before: attached, Now: attached, Instances: change.Parts(&files, eid),
	}, nil
}

// inShell changes the environment of this shell by a function, and then the shell. After an error
// neither is changed. A script has no shell to change, and one that 1.4.3 initialised asks
// for its change afterwards, by `genv shell --reattach`.
func (p *program) inShell(
	ctx context.Context, who *hostUser, by func(context.Context, snapshot.EnvID) (change.Result, error),
) (change.Result, error) {
	eid, err := who.active(ctx)
	if err != nil {
		return change.Result{}, err
	}
	caller, err := p.caller(who)
	script := errors.Is(err, shell.ErrNotInitialised)
	if err != nil && !script {
		return change.Result{}, err
	}
	result, err := by(ctx, eid)
	if err != nil {
		return result, err
	}
	active := p.visible(who, activeAfter(&result))
	if script {
		if !slices.Equal(result.Before, result.Now) {
			p.adviseScript(active)
		}
		return result, nil
	}
	return result, caller.Apply(shell.Update(active))
}

// adviseScript says how a script without the shell function gets its new devices.
func (p *program) adviseScript(active shell.Active) {
	visible := p.Getenv("CUDA_VISIBLE_DEVICES")
	if (shell.Shell143{Environ: p.Getenv}).Active() || visible == active.VisibleDevices() {
		return
	}
	p.Warn(fmt.Sprintf("CUDA_VISIBLE_DEVICES of this shell is still %q: run eval \"$(genv shell --reattach)\"",
		visible))
}

func (p *program) detachCommand() *cli.Command {
	index := ""
	return &cli.Command{
		Name:   "detach",
		Usage:  "detach GPUs from this environment, by default all",
		Flags:  []cli.Flag{command.String(&index, "index", "detach only these GPUs: `INDEX`, or several with commas")},
		Action: p.outsideContainers(func(c *cli.Context) error { return p.detach(c, index) }),
	}
}

func (p *program) detach(c *cli.Context, index string) error {
	list, err := readIndices(c, index)
	if err != nil {
		return err
	}
	who := p.person()
	result, err := p.inShell(c.Context, who, func(ctx context.Context, eid snapshot.EnvID) (change.Result, error) {
		return who.changeIn(ctx, eid, change.Change{Detach: &change.Detach{EID: eid, Indices: list}})
	})
	if err != nil {
		return err
	}
	var models inUse // asking for them isn't worth the time
	if detached := without(result.Before, result.Now); len(detached) > 0 {
		p.Warn("Detached " + models.named(detached))
	} else if list == nil {
		p.Warn("No GPU was attached")
	}
	if others := without(list, result.Before); len(others) > 0 {
		p.Warn("Not attached: " + models.named(others))
	}
	return nil
}
