// Command genv-demo shows genv at work on a fleet, on one machine and without
// root or a GPU: four simulated hosts with real SSH servers and real processes,
// people who share their GPUs, rules that some of them break, and the real genv
// program that ends just that. It checks itself what became of every process,
// exits with 1 if anything is not as it should be, and leaves nothing running.
//
//	make demo
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
)

func main() {
	if filepath.Base(os.Args[0]) == "nvidia-smi" { // on the simulated hosts
		os.Exit(gpus.Main(os.Args[1:], os.Stdout, os.Stderr, os.Getenv))
	}
	if ending := os.Getenv(jobVariable); ending != "" {
		os.Exit(work(ending))
	}
	// SIGPIPE too: after `make demo | head` there is something to clean up.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once; the kernel ends its children
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, os.Getenv))
}
