// Command genv-bench measures genv on whole fleets and prints a table, ratios
// first. `make bench` runs it, and then the benchmarks in Go of all packages.
// Where it is not root, or sshd is missing, it says which rows it leaves out.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	b := &bench{out: os.Stdout, progress: os.Stderr}
	flag.StringVar(&b.genv, "genv", "bin/genv", "the program to measure")
	flag.IntVar(&b.hosts, "hosts", 100, "hosts of real sshd")
	flag.IntVar(&b.many, "many", 1000, "hosts inside a process")
	flag.IntVar(&b.runs, "runs", 5, "runs of each row, of which the median counts")
	flag.StringVar(&b.only, "only", "", "only the rows of `GROUP`: cold, steady, many, viewers, kill, events")
	serve := flag.String("serve", "", "be a fleet of -many hosts with its files in `DIR`, until stdin ends")
	changing := flag.Bool("changing", false, "with -serve: hosts change as those do that are in use")
	flag.Parse()
	if err := run(b, *serve, *changing); err != nil {
		fmt.Fprintln(os.Stderr, "genv-bench:", err)
		os.Exit(1)
	}
}

func run(b *bench, serve string, changing bool) error {
	if serve != "" {
		host := quiet
		if changing {
			host = inUse
		}
		return serveFleet(serve, b.many, host, os.Stdin, os.Stdout)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return b.run(ctx)
}
