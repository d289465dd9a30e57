// Package host has the commands that root runs on a GPU host: `genv usage` for
// controllers, and `genv enforce`.
package host

import (
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

// Commands are what root runs on a GPU host.
func Commands(with command.Program) []*cli.Command {
	p := &program{with}
	return []*cli.Command{p.enforceCommand(), p.usageCommand()}
}
