package user

import (
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

func (p *program) detachCommand() *cli.Command {
	return &cli.Command{
		Name:   "detach",
		Usage:  "detach devices from this environment, by default all",
		Flags:  []cli.Flag{indexFlag("detach only these devices: `INDEX`, or several with commas")},
		Action: p.detach,
	}
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
