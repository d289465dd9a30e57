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
	var before, now []snapshot.DeviceIndex
	err = p.changeDevices(c.Context, who, eid, func(b *state.Files, env *snapshot.Environment) error {
		if config.GPUMemory.Known() {
			env.Config.GPUMemory = config.GPUMemory
		}
		before = b.AttachedTo(env.EID)
		now, err = attachTo(b, env, request)
		return err
	})
	if err == nil { // which devices it has is on stdout already
		p.Warn(others.warnings(c.Context, without(now, before))...)
	}
	return err
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
	return p.changeDevices(c.Context, who, eid, func(b *state.Files, env *snapshot.Environment) error {
		return detachFrom(b, env.EID, list)
	})
}

// changeDevices changes the attachments of an environment, and prints its devices.
// env is a copy. An environment that isn't registered belongs to no user; as in 1.4.3
// devices can be attached to it, until the state files are next cleaned up.
func (p *program) changeDevices(ctx context.Context, who *person, eid snapshot.EnvID, change func(b *state.Files, env *snapshot.Environment) error) error {
	var attached []snapshot.DeviceIndex
	err := who.Update(ctx, func(b *state.Files) error {
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
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.Out, text.JoinIndices(attached))
	return err
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
	_, err = fmt.Fprintln(p.Out, text.JoinIndices(files.AttachedTo(eid)))
	return err
}
