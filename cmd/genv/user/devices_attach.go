package user

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (p *program) devicesAttach(c *cli.Context) error {
	request, err := p.attachRequest(c)
	if err != nil {
		return err
	}
	var config snapshot.EnvConfig
	if err := environment.SetMemory(&config, c.String("gpu-memory")); err != nil {
		return err
	}
	who := p.person()
	eid, err := who.named(c)
	if err != nil {
		return err
	}
	others := who.inUseByOthers(c.Context, eid, who.uid)
	request.Busy = others.devices()
	var before []snapshot.DeviceIndex
	now, err := p.changeDevices(c.Context, who, eid, func(b *state.Files, env *snapshot.Environment) error {
		if config.GPUMemory.Known() {
			env.Config.GPUMemory = config.GPUMemory
		}
		before = b.AttachedTo(env.EID)
		_, err := attachExactly(b, env, request)
		return err
	})
	if err != nil {
		return err
	}
	p.Warn(others.warnings(c.Context, without(now, before))...)
	return p.printDevices(now)
}

// attachExactly attaches the requested devices, or by default as many as are configured.
// Unlike attachTo it does what programs know from `devices attach` of 1.4.3: without a
// configured number it attaches none, and from more than the number it goes down to it.
func attachExactly(b *state.Files, env *snapshot.Environment, r state.AttachRequest) ([]snapshot.DeviceIndex, error) {
	if r.Count == 0 && r.Indices == nil {
		if env.Config.GPUs == nil {
			return b.AttachedTo(env.EID), nil
		}
		r.Count = *env.Config.GPUs
	}
	now, err := attachTo(b, env, r)
	if err == nil && r.Count > 0 && len(now) > r.Count {
		now = b.Detach(env.EID, now[r.Count:]...)
	}
	return now, err
}

func (p *program) devicesDetach(c *cli.Context) error {
	list, err := indices(c)
	if err != nil {
		return err
	}
	who := p.person()
	eid, err := who.named(c)
	if err != nil {
		return err
	}
	attached, err := p.changeDevices(c.Context, who, eid, func(b *state.Files, env *snapshot.Environment) error {
		return detachFrom(b, env.EID, list)
	})
	if err != nil || c.Bool("quiet") {
		return err
	}
	return p.printDevices(attached)
}

func (p *program) printDevices(devices []snapshot.DeviceIndex) error {
	_, err := fmt.Fprintln(p.Out, text.JoinIndices(devices))
	return err
}

// changeDevices changes the attachments of an environment, and lists its devices.
// env is a copy. An environment that isn't registered belongs to no user; as in 1.4.3
// devices can be attached to it, until the state files are next cleaned up.
func (p *program) changeDevices(ctx context.Context, who *person, eid snapshot.EnvID, change func(b *state.Files, env *snapshot.Environment) error) (attached []snapshot.DeviceIndex, err error) {
	err = who.Update(ctx, func(b *state.Files) error {
		env := snapshot.Environment{EID: eid}
		switch registered, err := who.mine(b, eid); {
		case err == nil:
			env = *registered
		case !errors.Is(err, state.ErrNoEnvironment):
			return err
		}
		err := change(b, &env)
		attached = b.AttachedTo(eid)
		return err
	})
	return attached, err
}

func (p *program) devicesFind(c *cli.Context) error {
	who := p.person()
	eid, err := who.named(c)
	if err != nil {
		return err
	}
	files, err := p.deviceFiles(c)
	if err != nil {
		return err
	}
	return p.printDevices(files.AttachedTo(eid))
}
