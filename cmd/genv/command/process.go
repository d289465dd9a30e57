package command

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// ReaderCommand is the command of the helper that reads what users can make large or slow; see proc.Reader.
var ReaderCommand = []string{"usage", "read"}

// Read is the helper.
func Read() int {
	if err := proc.ServeReader(os.Stdin, os.Stdout); err != nil {
		return ExitFailed
	}
	return ExitOK
}

// Process is this process as a Program, with a context that ends at SIGINT or SIGTERM.
func Process(version string) (context.Context, Program) {
	ctx := context.Background()
	// Signals that this process was started to ignore, as sh starts background jobs
	// with SIGINT ignored, stay ignored, also by the commands that it runs.
	if ends := slices.DeleteFunc([]os.Signal{syscall.SIGINT, syscall.SIGTERM}, signal.Ignored); len(ends) > 0 {
		interruptible, stop := signal.NotifyContext(ctx, ends...)
		context.AfterFunc(interruptible, stop) // a second signal ends the program at once
		ctx = interruptible
	}
	return ctx, Program{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: system.Now, Version: version,
		Reader: &proc.Reader{Command: append([]string{"/proc/self/exe"}, ReaderCommand...)},
	}
}
