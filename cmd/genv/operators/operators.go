// Package operators has the commands with which operators tell a controller what not to do: `genv remote exempt`,
// `hold` and `release`. The controller runs, or has left its state in a folder.
package operators

import (
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

type program struct{ command.Program }

// Commands are those of `genv remote`.
func Commands(with command.Program) []*cli.Command {
	p := &program{with}
	return []*cli.Command{p.exemptCommand(), p.holdCommand(), p.releaseCommand()}
}
