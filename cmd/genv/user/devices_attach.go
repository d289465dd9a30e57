package user

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// devicesAttach attaches the requested devices, or by default as many as are configured.
// Unlike attach it does what programs know from `devices attach` of 1.4.3: without a
// configured number it attaches none, and from more than the number it goes down to it. An
// environment that isn't registered belongs to no user; as in 1.4.3 devices can be attached
// to it, until the state files are next cleaned up.
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
	if request.EID, err = who.named(c); err != nil {
		return err
	}
	if request.Instances, err = who.instances(c, request.EID); err != nil {
		return err
	}
	others := who.inUseByOthers(c.Context, request.EID, who.uid)
	request.States, request.Memory = gpus.InUse(others.gpus), config.GPUMemory
	request.Configured, request.Exact, request.Unregistered = true, true, request.EID != who.eid && request.Instances == nil
	result, err := who.changeIn(c.Context, request.EID, change.Change{Attach: &request})
	if err != nil {
		return err
	}
	p.Warn(others.warnings(without(result.Now, result.Before))...)
	return p.printDevices(result.Now)
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
	result, err := who.changeIn(c.Context, eid, change.Change{Detach: &change.Detach{EID: eid, Indices: list, Unregistered: eid != who.eid}})
	if err != nil || c.Bool("quiet") {
		return err
	}
	return p.printDevices(result.Now)
}

func (p *program) printDevices(devices []snapshot.DeviceIndex) error {
	_, err := fmt.Fprintln(p.Out, text.JoinIndices(devices))
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
	return p.printDevices(files.AttachedTo(eid))
}
