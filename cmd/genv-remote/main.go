// Command genv-remote is genv with the commands of a controller too: genv starts it
// for `genv remote …` and `genv policy …`, and for the help, the man pages and the
// completion of these. So the genv of users and GPU hosts stays small.
package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/app"
	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	"github.com/seed-3119e985/genv/cmd/genv/handover"
	"github.com/seed-3119e985/genv/cmd/genv/host"
	"github.com/seed-3119e985/genv/cmd/genv/user"
)

// version is set by the linker; see the Makefile.
var version = "devel"

func main() {
	if err := handover.Accept(version); err != nil {
		fmt.Fprintln(os.Stderr, "genv:", err)
		os.Exit(command.ExitFailed)
	}
	ctx, p := app.Process(version)
	os.Exit(app.Run(ctx, p, commands, os.Args))
}

// commands are all of genv's.
func commands(p command.Program) []*cli.Command {
	return slices.Concat(user.Commands(p), host.Commands(p), fleet.Commands(p))
}
