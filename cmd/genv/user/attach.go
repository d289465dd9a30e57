package user

import (
	"context"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (p *program) attachCommand() *cli.Command {
	return &cli.Command{
		Name:  "attach",
		Usage: "attach devices to this environment: as many as are configured, or one",
		Flags: append(attachFlags(),
			&cli.BoolFlag{Name: "refresh", Usage: "attach nothing; update this shell after another terminal attached or detached devices"}),
		Action: p.withPlainErrors(p.attach),
	}
}

// attachFlags are those of `genv attach` and `genv devices attach`.
func attachFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "count", Usage: "attach devices until there are `N` in all"},
		indexFlag("attach these devices: `INDEX`, or several with commas"),
		environment.OverSubscribeFlag(),
	}
}

func indexFlag(usage string) cli.Flag { return &cli.StringFlag{Name: "index", Usage: usage} }

func (p *program) attach(c *cli.Context) error {
	request, err := p.attachRequest(c)
	if err != nil {
		return err
	}
	if c.Bool("refresh") && (request.Count != 0 || request.Indices != nil) {
		return command.UsageError("--refresh attaches nothing: leave out --count and --index")
	}
	if c.Bool("refresh") {
		return p.inShell(c.Context, func(*state.Files, *snapshot.Environment) error { return nil })
	}
	who := p.person()
	var others inUse
	if who.eid != "" { // else it is refused
		others = who.inUseByOthers(c.Context, who.eid, who.uid)
	}
	request.Busy = others.devices()
	var before, now []snapshot.DeviceIndex
	err = p.inShell(c.Context, func(b *state.Files, env *snapshot.Environment) error {
		before = b.AttachedTo(env.EID)
		now, err = attachTo(b, env, request)
		return err
	})
	if err == nil {
		p.reportAttached(c.Context, others, before, now)
	}
	return err
}

// inShell changes the environment of this shell, and then the shell. After an error
// neither is changed.
func (p *program) inShell(ctx context.Context, change func(*state.Files, *snapshot.Environment) error) error {
	who := p.person()
	eid, err := who.active(ctx)
	if err != nil {
		return err
	}
	caller, err := p.caller(who)
	if err != nil {
		return err
	}
	var active shell.Active
	err = who.Update(ctx, func(b *state.Files) error {
		env, err := who.mine(b, eid)
		if err != nil {
			return err
		}
		if err := change(b, env); err != nil {
			return err
		}
		active = activeOf(b, eid)
		return nil
	})
	if err != nil {
		return err
	}
	return caller.Apply(shell.Update(active))
}

// attachTo attaches the requested devices, or by default as many as the environment
// is configured with, and lists all devices of the environment.
func attachTo(b *state.Files, env *snapshot.Environment, r state.AttachRequest) ([]snapshot.DeviceIndex, error) {
	r.EID, r.Memory = env.EID, env.Config.GPUMemory
	if r.Count == 0 && r.Indices == nil {
		r.Count = 1
		if env.Config.GPUs != nil {
			r.Count = *env.Config.GPUs
		}
	}
	return b.Attach(r)
}

// attachRequest reads attachFlags.
func (p *program) attachRequest(c *cli.Context) (state.AttachRequest, error) {
	r := state.AttachRequest{OverSubscribe: environment.OverSubscribe(c, p.Getenv), At: snapshot.DateOf(p.Now())}
	if c.IsSet("count") {
		n, err := strconv.Atoi(c.String("count"))
		if err != nil || n < 1 {
			return r, command.UsageError("--count %q: write how many devices you need in all, 1 or more", c.String("count"))
		}
		r.Count = n
	}
	var err error
	r.Indices, err = indices(c)
	if err == nil && r.Count != 0 && r.Indices != nil {
		err = command.UsageError("--count and --index exclude each other")
	}
	return r, err
}

// indices reads --index.
func indices(c *cli.Context) ([]snapshot.DeviceIndex, error) {
	if !c.IsSet("index") {
		return nil, nil
	}
	list, err := text.ParseIndices[snapshot.DeviceIndex](c.String("index"))
	if err != nil {
		return nil, command.UsageError("--index %q: write the index of a device, such as 0, or several, such as 0,2; `genv devices` lists them", c.String("index"))
	}
	return list, nil
}
