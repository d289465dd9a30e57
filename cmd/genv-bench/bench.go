package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

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
		names[i] = hostName(prefix, i)
	}
	return names
}

// hostName is the name of the host with an index.
func hostName(prefix string, index int) string { return fmt.Sprintf("%s-%04d", prefix, index+1) }

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
