// Package fleet has the commands that run on a controller: `genv remote …` and
// `genv policy …`.
package fleet

import (
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

// Commands are what administrators run on a controller.
func Commands(with command.Program) []*cli.Command {
	p := &program{with}
	return []*cli.Command{p.policyCommand(), p.remoteCommand()}
}

func (p *program) remoteCommand() *cli.Command {
	return &cli.Command{
		Name:  "remote",
		Usage: "work on many hosts over SSH",
		Flags: remoteFlags(),
		Subcommands: []*cli.Command{
			p.remoteActivateCommand(),
			p.remoteEnforceCommand(),
			p.remoteHistoryCommand(),
			p.remoteDevicesCommand(),
			p.remoteEnvsCommand(),
			p.remoteQueryCommand(),
		},
	}
}
