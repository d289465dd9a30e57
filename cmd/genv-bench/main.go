// Command genv-bench measures genv on whole fleets and prints a table, ratios first. `make bench` runs it, and then
// the benchmarks in Go of all packages. Where it is not root, or sshd is missing, it says which rows it leaves out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
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

// startRows compares `genv version` with a program that does nothing: each command, shim and container pays for the init
// of all that genv links.
func (b *bench) startRows(ctx context.Context) (_ []row, err error) {
	dir, err := os.MkdirTemp("", "genv-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	source, empty := filepath.Join(dir, "main.go"), filepath.Join(dir, "empty")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		return nil, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", empty, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := quietly(build); err != nil {
		return nil, err
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

// bench holds what the rows share.
type bench struct {
	genv          string
	hosts, many   int
	huge          int
	runs          int
	reporting     bool // hosts inside processes report events
	only, commit  string
	out, progress io.Writer
}

// row is a line of the table: a ratio or a figure, and the goal for it.
type row struct {
	what, figure, goal, detail string
	ratio                      bool
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.genv, err = filepath.Abs(b.genv); err != nil {
		return err
	}
	var rows []row
	for _, group := range []struct {
		name    string
		measure func(context.Context) ([]row, error)
	}{
		{"start", b.startRows},
		{"cold", b.overSSH(b.coldRows)},
		{"steady", b.overSSH(b.steadyRows)},
		{"many", b.manyRows},
		{"events", b.overSSH(b.eventRows)},
		{"against", b.commitRows},
		{"huge", b.hugeRows},
	} {
		if b.only != "" && b.only != group.name || b.only == "" && group.name == "huge" { // it takes some minutes
			continue
		}
		fmt.Fprintf(b.progress, "measuring: %s\n", group.name)
		more, err := group.measure(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", group.name, err)
		}
		rows = append(rows, more...)
	}
	return b.print(rows)
}

// overSSH gives a measurement a fleet of real sshd, or leaves it out where there can be none.
func (b *bench) overSSH(measure func(context.Context, *sshd.Fleet) ([]row, error)) func(context.Context) ([]row, error) {
	return func(ctx context.Context) (rows []row, err error) {
		if err := sshd.Available(); err != nil {
			return []row{{what: "rows with real sshd", figure: "left out", detail: err.Error()}}, nil
		}
		fleet, err := sshd.Open(sshd.Options{Hosts: sshd.Named(b.names()...), Genv: b.genv})
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, fleet.Close()) }()
		return measure(ctx, fleet)
	}
}

// names are those of the hosts of real sshd.
func (b *bench) names() []string { return numbered("gpu", b.hosts) }

func numbered(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%04d", prefix, i+1)
	}
	return names
}

// print writes the table: ratios first, then the figures.
func (b *bench) print(rows []row) error {
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tFIGURE\tGOAL\tDETAIL")
	for _, ratio := range []bool{true, false} {
		for _, r := range rows {
			if r.ratio == ratio {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.what, r.figure, r.goal, r.detail)
			}
		}
	}
	return w.Flush()
}

func brief(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.0f µs", d.Seconds()*1e6)
}

// inTurn runs things one after the other, once to warm up and then b.runs times, and returns the median of each: other
// load on the machine affects all of them alike.
func (b *bench) inTurn(things []func() (time.Duration, error)) ([]time.Duration, error) {
	taken := make([][]time.Duration, len(things))
	for i := range b.runs + 1 {
		for n, thing := range things {
			d, err := thing()
			if err != nil {
				return nil, err
			}
			if i > 0 {
				taken[n] = append(taken[n], d)
			}
		}
	}
	medians := make([]time.Duration, len(things))
	for n := range taken {
		medians[n] = quantile(taken[n], 0.5)
	}
	return medians, nil
}

func timed(f func() error) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		start := time.Now()
		err := f()
		return time.Since(start), err
	}
}

// quantile is the value below which a part q of them lies; of none it is 0.
func quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
