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
	flag.IntVar(&b.huge, "huge", 10_000, "hosts inside several processes, for the rows of -only huge")
	flag.IntVar(&b.runs, "runs", 5, "runs of each row, of which the median counts")
	flag.StringVar(&b.only, "only", "", "only the rows of `GROUP`: start, cold, steady, many, kill, events, huge, which takes some minutes and is left out without it")
	serve := flag.String("serve", "", "be a fleet of -many hosts with its files in `DIR`, until stdin ends")
	prefix := flag.String("prefix", "sim", "with -serve: what the names of the hosts begin with")
	first := flag.Int("first", 0, "with -serve: how many hosts other fleets have, which have other addresses")
	flag.BoolVar(&b.reporting, "reporting", false, "hosts inside processes report events, as hosts with genv do")
	flag.Parse()
	run := b.measure
	if *serve != "" {
		run = func() error { return b.serve(*serve, *prefix, *first, os.Stdin, os.Stdout) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "genv-bench:", err)
		os.Exit(1)
	}
}

func (b *bench) measure() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return b.run(ctx)
}
