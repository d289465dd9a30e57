package user

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

func (p *program) attach(c *cli.Context) error {
	request, err := p.attachRequest(c)
	if err != nil {
		return err
	}
	if c.Bool("refresh") {
		if request.Count != 0 || request.Indices != nil || c.Bool("config") {
			return command.UsageError("--refresh attaches nothing: leave out --config, --count and --index")
		}
		return p.inShell(c.Context, func(*state.Files, *snapshot.Environment) error { return nil })
	}
	if c.Bool("config") && (request.Count != 0 || request.Indices != nil) {
		return command.UsageError("--config attaches as many as are configured: leave out --count and --index")
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
		if now = before; c.Bool("config") && env.Config.GPUs == nil {
			return nil
		}
		now, err = attachTo(b, env, request)
		return err
	})
	if err == nil {
		p.reportAttached(c.Context, others, before, now)
	}
	return err
}

// inShell changes the environment of this shell, and then the shell. After an error
// neither is changed. A script has no shell to change, and one that 1.4.3 initialised asks
// for its change afterwards, by `genv shell --reattach`.
func (p *program) inShell(ctx context.Context, change func(*state.Files, *snapshot.Environment) error) error {
	who := p.person()
	eid, err := who.active(ctx)
	if err != nil {
		return err
	}
	caller, err := p.caller(who)
	script := errors.Is(err, shell.ErrNotInitialised)
	if err != nil && !script {
		return err
	}
	var before []snapshot.DeviceIndex
	var active shell.Active
	err = who.Update(ctx, func(b *state.Files) error {
		env, err := who.mine(b, eid)
		if err != nil {
			return err
		}
		before = b.AttachedTo(eid)
		if err := change(b, env); err != nil {
			return err
		}
		active = activeOf(b, eid)
		return nil
	})
	if err != nil {
		return err
	}
	if script {
		if !slices.Equal(before, active.Devices) {
			p.adviseScript(active)
		}
		return nil
	}
	return caller.Apply(shell.Update(active))
}

// adviseScript says how a script without the shell function gets its new devices.
func (p *program) adviseScript(active shell.Active) {
	visible := p.Getenv("CUDA_VISIBLE_DEVICES")
	if (shell.Shell143{Environ: p.Getenv}).Active() || visible == shell.VisibleDevices(active.Devices) {
		return
	}
	p.Warn(fmt.Sprintf("CUDA_VISIBLE_DEVICES of this shell is still %q: run eval \"$(genv shell --reattach)\"", visible))
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

func (p *program) detach(c *cli.Context) error {
	list, err := indices(c)
	if err != nil {
		return err
	}
	return p.inShell(c.Context, func(b *state.Files, env *snapshot.Environment) error {
		return detachFrom(b, env.EID, list)
	})
}

// detachFrom refuses devices that the host doesn't have, which are likely typing
// errors. A device that isn't attached is no error.
func detachFrom(b *state.Files, eid snapshot.EnvID, list []snapshot.DeviceIndex) error {
	for _, index := range list {
		if b.Device(index) == nil {
			return b.NoDevice(index)
		}
	}
	b.Detach(eid, list...)
	return nil
}
