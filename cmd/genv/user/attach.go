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
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/state/change"
)

func (p *program) attachCommand() *cli.Command {
	return &cli.Command{
		Name:  "attach",
		Usage: "attach GPUs to this environment: as many as are configured, or one",
		Flags: append(attachFlags(),
			&cli.BoolFlag{Name: "config", Usage: "attach as many as are configured, and none if no number is"},
			&cli.BoolFlag{Name: "refresh", Usage: "attach nothing; update this shell after another terminal attached or detached GPUs"}),
		Action: p.outsideContainers(p.attach),
	}
}

// attachFlags are those of `genv attach` and `genv devices attach`.
func attachFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "count", Usage: "attach GPUs until there are `N` in all"},
		indexFlag("attach these GPUs: `INDEX`, or several with commas"),
		&cli.StringFlag{Name: "mig", Usage: "attach this MIG `INSTANCE`, or several with commas: a UUID, or a profile such as 1g.10gb for any free one"},
		environment.OverSubscribeFlag(),
	}
}

// attachRequest reads attachFlags.
func (p *program) attachRequest(c *cli.Context) (change.Attach, error) {
	r := change.Attach{OverSubscribe: environment.OverSubscribe(c, p.Getenv)}
	if c.IsSet("count") {
		n, err := strconv.Atoi(c.String("count"))
		if err != nil || n < 1 {
			return r, command.UsageError("--count %q: write how many GPUs you need in all, 1 or more", c.String("count"))
		}
		r.Count = n
	}
	var err error
	r.Indices, err = indices(c)
	given := 0
	for _, name := range []string{"count", "index", "mig"} {
		if c.IsSet(name) {
			given++
		}
	}
	if err == nil && given > 1 {
		err = command.UsageError("--count, --index and --mig exclude each other")
	}
	return r, err
}

func (p *program) attach(c *cli.Context) error {
	request, err := p.attachRequest(c)
	if err != nil {
		return err
	}
	request.Configured = c.Bool("config")
	who := p.person()
	if c.Bool("refresh") {
		if request.Count != 0 || request.Indices != nil || request.Configured || c.IsSet("mig") {
			return command.UsageError("--refresh attaches nothing: leave out --config, --count, --index and --mig")
		}
		_, err := p.inShell(c.Context, who, who.look)
		return err
	}
	if request.Configured && (request.Count != 0 || request.Indices != nil || c.IsSet("mig")) {
		return command.UsageError("--config attaches as many as are configured: leave out --count, --index and --mig")
	}
	if request.Instances, err = who.instances(c, who.eid); err != nil {
		return err
	}
	var others inUse
	if who.eid != "" { // else it is refused
		others = who.inUseByOthers(c.Context, who.eid, who.uid)
	}
	request.States = gpus.InUse(others.gpus)
	result, err := p.inShell(c.Context, who, func(ctx context.Context, eid snapshot.EnvID) (change.Result, error) {
		request.EID = eid
		return who.changeIn(ctx, eid, change.Change{Attach: &request})
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
	files, err := w.StateFiles(ctx)
	if err != nil {
		return change.Result{}, err
	}
	env, err := w.mine(&files, eid)
	if err != nil {
		return change.Result{}, err
	}
	if len(env.Former) > 0 { // root's genv learns that this shell knows the present indices
		return w.changeIn(ctx, eid, change.Change{Attach: &change.Attach{EID: eid, Refresh: true}})
	}
	attached := files.AttachedTo(eid)
	return change.Result{EID: eid, Config: env.Config, Before: attached, Now: attached, Instances: change.Parts(&files, eid)}, nil
}

// inShell changes the environment of this shell by a function, and then the shell. After an error
// neither is changed. A script has no shell to change, and one that 1.4.3 initialised asks
// for its change afterwards, by `genv shell --reattach`.
func (p *program) inShell(ctx context.Context, who *hostUser, by func(context.Context, snapshot.EnvID) (change.Result, error)) (change.Result, error) {
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
	p.Warn(fmt.Sprintf("CUDA_VISIBLE_DEVICES of this shell is still %q: run eval \"$(genv shell --reattach)\"", visible))
}

func (p *program) detachCommand() *cli.Command {
	return &cli.Command{
		Name:   "detach",
		Usage:  "detach GPUs from this environment, by default all",
		Flags:  []cli.Flag{indexFlag("detach only these GPUs: `INDEX`, or several with commas")},
		Action: p.outsideContainers(p.detach),
	}
}

func (p *program) detach(c *cli.Context) error {
	list, err := indices(c)
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
	if detached := without(result.Before, result.Now); len(detached) > 0 {
		var models inUse // asking for them isn't worth the time
		p.Warn("Detached " + models.named(detached))
	}
	return nil
}
