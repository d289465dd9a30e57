// Command genv-remote has all commands of genv and those of a controller. genv becomes this
// program for `genv remote …` and `genv policy …`, and for their help, man pages and
// completion. This keeps the genv of users and GPU hosts small.
package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/app"
	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/delegate"
	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	"github.com/seed-3119e985/genv/cmd/genv/host"
	"github.com/seed-3119e985/genv/cmd/genv/user"
)

// version is set by the linker; see the Makefile.
var version = "devel"

func main() {
	if err := delegate.Accept(version); err != nil {
		fmt.Fprintln(os.Stderr, "genv:", err)
		os.Exit(command.ExitFailed)
	}
	ctx, p := app.Process(version)
	os.Exit(app.Run(ctx, p, commands, os.Args))
}

// commands are those of genv, and those of a controller.
func commands(p command.Program) []*cli.Command {
	return slices.Concat(user.Commands(p), host.Commands(p), fleet.Commands(p))
}
