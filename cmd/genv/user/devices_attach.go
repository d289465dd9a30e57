package user

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// attachTo attaches the requested devices, or by default as many as are configured. Unlike attach it does what
// programs know from `devices attach` of 1.4.3: without a configured number it attaches none, and from more than the
// number it goes down to it. An environment that isn't registered belongs to no user; as in 1.4.3 devices can be
// attached to it, until the state files are next cleaned up.
func (o *devicesOptions) attachTo(c *cli.Context) error {
	request, err := o.attach.request(c, o.Getenv)
	if err != nil {
		return err
	}
	var config snapshot.EnvConfig
	if err := environment.SetMemory(&config, o.gpuMemory); err != nil {
		return err
	}
	who := o.person()
	if request.EID, err = who.named(c, o.eid); err != nil {
		return err
	}
	if request.Instances, err = who.instances(c, o.attach.mig, request.EID); err != nil {
		return err
	}
	others := o.inUseByOthers(c.Context, who, request.EID, who.uid)
	others.restrict(&request.Availability)
	request.Memory = config.GPUMemory
	request.Configured, request.Exact = true, true
	request.Unregistered = request.EID != who.eid && request.Instances == nil
	result, err := who.changeIn(c.Context, request.EID, change.Change{Attach: &request})
	if err != nil {
		return err
	}
	o.Warn(others.warnings(without(result.Now, result.Before))...)
	return o.print(result.Now)
}

func (o *devicesOptions) detachFrom(c *cli.Context) error {
	list, err := readIndices(c, o.attach.index)
	if err != nil {
		return err
	}
	who := o.person()
	eid, err := who.named(c, o.eid)
	if err != nil {
		return err
	}
	detach := &change.Detach{EID: eid, Indices: list, Unregistered: eid != who.eid}
	result, err := who.changeIn(c.Context, eid, change.Change{Detach: detach})
	if err != nil || o.quiet {
		return err
	}
	return o.print(result.Now)
}

func (o *devicesOptions) print(devices []snapshot.DeviceIndex) error {
	_, err := fmt.Fprintln(o.Out, text.JoinIndices(devices))
	return err
}

func (o *devicesOptions) find(c *cli.Context) error {
	eid, err := o.person().named(c, o.eid)
	if err != nil {
		return err
	}
	files, err := o.deviceFiles(c, &o.stateOptions)
	if err != nil {
		return err
	}
	return o.print(files.AttachedTo(eid))
}
