// Command genv gives people GPU environments on shared machines and enforces
// that only what was attached is used, on this machine and, over SSH, on a fleet.
package main

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	"github.com/seed-3119e985/genv/cmd/genv/host"
	"github.com/seed-3119e985/genv/cmd/genv/user"
)

// version is set by the linker; see the Makefile.
var version = "devel"

func commands(p command.Program, named string) []*cli.Command {
	return slices.Concat(user.Commands(p), host.Commands(p), fleet.Commands(p, named))
}

func main() {
	if filepath.Base(os.Args[0]) == "genv-docker" { // its name in 1.4.3
		os.Args = append([]string{"genv", "docker"}, os.Args[1:]...)
	}
	ctx, p := command.Process(version)
	if called(host.RuntimeCommand) {
		os.Exit(host.ContainerRuntime(ctx, p, os.Args[2:]))
	}
	if called(host.HookCommand) {
		os.Exit(host.ContainerHook(ctx, p, os.Args[2:]))
	}
	if shim, isShim := user.Shim(os.Args[0]); isShim {
		os.Exit(user.RunShim(ctx, p, shim, os.Args[1:]))
	}
	if slices.Equal(os.Args[1:], command.ReaderCommand) {
		os.Exit(command.Read())
	}
	os.Exit(command.Run(ctx, p, commands, os.Args))
}

// called says whether this program was started with a command of a container engine, which
// calls it for every container.
func called(command string) bool { return len(os.Args) > 1 && os.Args[1] == command }
