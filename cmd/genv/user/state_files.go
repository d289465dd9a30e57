package user

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// errOnlyRootResets protects the other users: the state files are those of all.
var errOnlyRootResets = errors.New("--reset clears the state of all users: only root may, with `sudo genv envs --reset` or `sudo genv devices --reset`")

// deviceFiles are the state files for a command that lists devices.
func (p *program) deviceFiles(c *cli.Context) (state.Files, error) {
	who := p.person()
	if command.Bool(c, "reset") {
		if who.uid != 0 {
			return state.Files{}, errOnlyRootResets
		}
		found, err := who.Machine.ListDevices(c.Context)
		if err != nil {
			return state.Files{}, err
		}
		if err := who.Store.ResetDevices(c.Context, found); err != nil {
			return state.Files{}, err
		}
	}
	files, err := who.Devices(c.Context, command.Bool(c, "no-cleanup"))
	p.Warn(files.Warnings...)
	return files, err
}

// environmentFiles are the state files for a command that lists environments.
func (p *program) environmentFiles(c *cli.Context) (state.Files, error) {
	who := p.person()
	if command.Bool(c, "reset") {
		if who.uid != 0 {
			return state.Files{}, errOnlyRootResets
		}
		if err := who.Store.ResetEnvironments(c.Context); err != nil {
			return state.Files{}, err
		}
	}
	read := who.StateFiles
	if command.Bool(c, "no-cleanup") {
		read = who.RawStateFiles
	}
	files, err := read(c.Context)
	p.Warn(files.Warnings...)
	for i := range files.Environments {
		if e := &files.Environments[i]; e.OwnerMismatch {
			p.Warn(fmt.Sprintf("environment %s is registered for %s, but that uid has another name or its processes another owner",
				text.Shown(string(e.EID)), shownOwner(e)))
		}
	}
	return files, err
}
