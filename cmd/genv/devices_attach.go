package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

func (p *program) devicesAttach(c *cli.Context) error {
	if err := refuseArguments(c); err != nil {
		return err
	}
	if err := refuseBookFlags(c); err != nil {
		return err
	}
	request, err := p.attachRequest(c)
	if err != nil {
		return err
	}
	var config snapshot.EnvConfig
	if err := setMemory(&config, c.String("gpu-memory")); err != nil {
		return err
	}
	request.At = snapshot.DateOf(p.now())
	who, err := p.person()
	if err != nil {
		return err
	}
	eid, err := who.named(c.Context, c)
	if err != nil {
		return err
	}
	others := who.inUseByOthers(c.Context, eid, who.uid)
	request.Busy = others.devices()
	var before, now []snapshot.DeviceIndex
	err = p.withDevicesOf(c, func(b *state.Books, env *snapshot.Environment) error {
		if config.GPUMemory.Known() {
			env.Config.GPUMemory = config.GPUMemory
		}
		before = b.AttachedTo(env.EID)
		now, err = attachTo(b, env, request)
		return err
	})
	if err == nil { // which devices it has is on stdout already
		p.warn(others.warnings(c.Context, without(now, before)))
	}
	return err
}

func (p *program) devicesDetach(c *cli.Context) error {
	if err := refuseArguments(c); err != nil {
		return err
	}
	list, err := indices(c)
	if err != nil {
		return err
	}
	return p.withDevicesOf(c, func(b *state.Books, env *snapshot.Environment) error {
		return detachFrom(b, env.EID, list)
	})
}

// withDevicesOf changes the attachments of the environment that --eid names, and
// prints which devices it has then. env is a copy. One that is not registered
// is nobody's; as in 1.4.3 it can be given devices, which it has until the books
// are next read.
func (p *program) withDevicesOf(c *cli.Context, change func(b *state.Books, env *snapshot.Environment) error) error {
	if err := refuseBookFlags(c); err != nil {
		return err
	}
	who, err := p.person()
	if err != nil {
		return err
	}
	eid, err := who.named(c.Context, c)
	if err != nil {
		return err
	}
	var attached []snapshot.DeviceIndex
	err = who.update(c.Context, func(b *state.Books) error {
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
	_, err = fmt.Fprintln(p.out, joined(attached))
	return err
}

// named is the environment of --eid, or else the one of this shell.
func (w *person) named(ctx context.Context, c *cli.Context) (snapshot.EnvID, error) {
	eid := c.String("eid")
	if !c.IsSet("eid") {
		return w.active(ctx)
	}
	if err := snapshot.CheckText("--eid", eid); err != nil || eid == "" {
		return "", usage("--eid %q is no environment's id: `genv envs` lists them", eid)
	}
	return snapshot.EnvID(eid), nil
}

func (p *program) devicesFind(c *cli.Context) error {
	if err := refuseArguments(c); err != nil {
		return err
	}
	who, err := p.person()
	if err != nil {
		return err
	}
	eid, err := who.named(c.Context, c)
	if err != nil {
		return err
	}
	books, err := p.deviceBooks(c)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.out, joined(books.AttachedTo(eid)))
	return err
}
