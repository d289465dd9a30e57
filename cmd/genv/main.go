// Command genv gives people GPU environments on shared machines and enforces
// that only what was attached is used, on this machine and, over SSH, on a fleet.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	"github.com/seed-3119e985/genv/cmd/genv/host"
	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/cmd/genv/user"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/system"
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
	ctx, p := process()
	if os.Args[0] == command.MonitorName {
		os.Exit(command.AsAccountBeside(ctx, p, os.Args[1:]))
	}
	if called(host.RuntimeCommand) {
		os.Exit(host.ContainerRuntime(ctx, p, os.Args[2:]))
	}
	if called(host.HookCommand) {
		os.Exit(host.ContainerHook(ctx, p, os.Args[2:]))
	}
	if shim, isShim := shell.Shim(os.Args[0]); isShim {
		os.Exit(user.RunShim(ctx, p, shim, os.Args[1:]))
	}
	if slices.Equal(os.Args[1:], readerCommand) {
		os.Exit(read())
	}
	os.Exit(command.Run(ctx, p, commands, os.Args))
}

func called(command string) bool { return len(os.Args) > 1 && os.Args[1] == command }

// readerCommand runs the helper that reads what users can make large or slow; see proc.ReaderProcess.
var readerCommand = []string{"usage", "read"}

func read() int {
	if err := proc.ServeReader(os.Stdin, os.Stdout); err != nil {
		return command.ExitFailed
	}
	return command.ExitOK
}

// process describes this process, with a context that ends at SIGINT or SIGTERM.
func process() (context.Context, command.Program) {
	ctx := context.Background()
	// Ignored signals stay ignored, also for the commands that this process runs: sh, for example, starts background
	// jobs with SIGINT ignored.
	if ends := slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGTERM}, signal.Ignored); len(ends) > 0 {
		interruptible, stop := signal.NotifyContext(ctx, ends...)
		// After a second, another signal ends the program at once. An earlier one may be the same signal: a service
		// manager sends it to root's process, which relays it, and to the account's.
		context.AfterFunc(interruptible, func() { time.AfterFunc(time.Second, stop) })
		ctx = interruptible
	}
	return ctx, command.Program{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: system.Now, Version: version,
		Reader: &proc.ReaderProcess{Command: append([]string{"/proc/self/exe"}, readerCommand...)},
	}
}
