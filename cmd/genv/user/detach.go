package user

import (
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

func (p *program) detachCommand() *cli.Command {
	return &cli.Command{
		Name:   "detach",
		Usage:  "detach devices from this environment, all unless --index names some",
		Flags:  []cli.Flag{indexFlag("detach these devices alone: `INDEX`, or several with commas")},
		Action: p.plainly(p.detach),
	}
}

func (p *program) detach(c *cli.Context) error {
	if err := command.RefuseArguments(c); err != nil {
		return err
	}
	list, err := indices(c)
	if err != nil {
		return err
	}
	return p.inShell(c.Context, func(b *state.Files, env *snapshot.Environment) error {
		return detachFrom(b, env.EID, list)
	})
}

// detachFrom refuses devices that the host doesn't have: to say nothing would
// hide a slip. One that isn't attached is what was asked for.
func detachFrom(b *state.Files, eid snapshot.EnvID, list []snapshot.DeviceIndex) error {
	for _, index := range list {
		if b.Device(index) == nil {
			return &state.NoDeviceError{Index: index, Total: len(b.Devices)}
		}
	}
	b.Detach(eid, list...)
	return nil
}
