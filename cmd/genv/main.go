// Command genv gives people GPU environments on shared machines and enforces
// that only what was attached is used, on this machine and, over SSH, on a
// fleet.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// version is set by the linker; see the Makefile.
var version = "devel"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	p := &program{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv, now: time.Now}
	os.Exit(p.run(ctx, os.Args))
}
