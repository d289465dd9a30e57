// Command genv gives people GPU environments on shared machines and enforces
// that only what was attached is used, on this machine and, over SSH, on a
// fleet.
package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

// version is set by the linker; see the Makefile.
var version = "devel"

func main() {
	ctx := context.Background()
	// Signals that this process was started to ignore, as sh starts background jobs
	// with SIGINT ignored, stay ignored, also by the commands that it runs.
	if ends := slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGTERM}, signal.Ignored); len(ends) > 0 {
		interruptible, stop := signal.NotifyContext(ctx, ends...)
		context.AfterFunc(interruptible, stop) // a second signal ends the program at once
		ctx = interruptible
	}
	p := &program{command.Program{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now, Version: version}}
	os.Exit(p.run(ctx, os.Args))
}
