// Command genv-bench measures genv on whole fleets and prints a table, ratios first. `make bench` runs it, and then
// the benchmarks in Go of all packages. Where it is not root, or sshd is missing, it says which rows it leaves out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"
)

func main() {
	b := &bench{out: os.Stdout, progress: os.Stderr}
	flag.StringVar(&b.genv, "genv", "bin/genv", "the program to measure")
	flag.IntVar(&b.hosts, "hosts", 100, "hosts of real sshd")
	flag.IntVar(&b.many, "many", 1000, "hosts inside a process")
	flag.IntVar(&b.huge, "huge", 10_000, "hosts inside several processes, for the rows of -only huge")
	flag.IntVar(&b.runs, "runs", 5, "runs of each row, of which the median counts")
	flag.StringVar(&b.only, "only", "", "only the rows of `GROUP`: start, cold, steady, many, events, against, huge, which takes some minutes and is left out without it")
	flag.StringVar(&b.commit, "against", "", "compare a cold start and steady cycles with those of the program of a `COMMIT`")
	serve := flag.String("serve", "", "be a fleet of -many hosts with its files in `DIR`, until stdin ends")
	prefix := flag.String("prefix", "sim", "with -serve: what the names of the hosts begin with")
	first := flag.Int("first", 0, "with -serve: how many hosts other fleets have, which have other addresses")
	flag.BoolVar(&b.reporting, "reporting", false, "hosts inside processes report events, as hosts with genv do")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	run := b.run
	if *serve != "" {
		run = func(context.Context) error { return b.serve(*serve, *prefix, *first, os.Stdin, os.Stdout) }
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "genv-bench:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

// starts is how often each program of startRows is started.
const starts = 200

// emptyProgram does nothing: a start of it is the least that a program in Go takes.
const emptyProgram = "package main\n\nfunc main() {}\n"

// startRows compares `genv version` with a program that does nothing. Every command of a user,
// every shim and every container pays for the init of all that genv links.
func (b *bench) startRows(ctx context.Context) (_ []row, err error) {
	dir, err := os.MkdirTemp("", "genv-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	source, empty := filepath.Join(dir, "main.go"), filepath.Join(dir, "empty")
	if err := os.WriteFile(source, []byte(emptyProgram), 0o600); err != nil {
		return nil, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", empty, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build an empty program: %w: %s", err, out)
	}
	medians, err := (&bench{runs: starts}).inTurn([]func() (time.Duration, error){
		timed(func() error { return exec.CommandContext(ctx, empty).Run() }),
		timed(func() error { return exec.CommandContext(ctx, b.genv, "version").Run() }),
	})
	if err != nil {
		return nil, err
	}
	least, start := medians[0], medians[1]
	return []row{{
		what: "start: genv version / empty program", figure: fmt.Sprintf("%.2f", start.Seconds()/least.Seconds()), goal: "≤ 3.1", ratio: true,
		detail: fmt.Sprintf("%s and %s, medians of %d starts in turn", brief(start), brief(least), starts),
	}}, nil
}
