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
	runs          int
	only          string
	out, progress io.Writer
}

// row is a line of the table: a ratio or a figure, and the goal for it.
type row struct{ what, figure, goal, detail string }

// group is rows that are measured together.
type group struct {
	name    string
	ssh     bool // on a fleet of real sshd
	measure func(context.Context, *sshd.Fleet) ([]row, error)
}

func (b *bench) run(ctx context.Context) error {
	genv, err := filepath.Abs(b.genv)
	if err != nil {
		return err
	}
	b.genv = genv
	var rows []row
	for _, g := range []group{
		{"cold", true, b.coldRows},
		{"steady", true, b.steadyRows},
		{"many", false, b.manyRows},
		{"kill", true, b.killRows},
		{"evaluate", false, b.evaluateRows},
		{"server", false, b.serverRows},
		{"desk", false, func(ctx context.Context, _ *sshd.Fleet) ([]row, error) { return b.hostRows(ctx) }},
	} {
		if b.only != "" && b.only != g.name {
			continue
		}
		fmt.Fprintf(b.progress, "measuring: %s\n", g.name)
		more, err := b.measure(ctx, g)
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		rows = append(rows, more...)
	}
	return b.print(rows)
}

// measure gives each group that needs one a fleet of its own.
func (b *bench) measure(ctx context.Context, g group) (rows []row, err error) {
	if !g.ssh {
		return g.measure(ctx, nil)
	}
	if err := sshd.Available(); err != nil {
		return []row{{what: g.name + ": rows with real sshd", figure: "left out", detail: err.Error()}}, nil
	}
	fleet, err := sshd.Open(sshd.Options{Hosts: sshd.Named(b.names()...), Genv: b.genv})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, fleet.Close()) }()
	return g.measure(ctx, fleet)
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
	slices.SortStableFunc(rows, func(x, y row) int { return isRatio(y) - isRatio(x) })
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tFIGURE\tGOAL\tDETAIL")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.what, r.figure, r.goal, r.detail)
	}
	return w.Flush()
}

func isRatio(r row) int {
	if last, ok := lastRune(r.figure); ok && last == '×' {
		return 1
	}
	return 0
}

func lastRune(s string) (rune, bool) {
	all := []rune(s)
	if len(all) == 0 {
		return 0, false
	}
	return all[len(all)-1], true
}

// ratio is how many times as fast ours is.
func ratio(what, goal string, ours, theirs time.Duration) row {
	return row{
		what: what, figure: fmt.Sprintf("%.1f×", theirs.Seconds()/ours.Seconds()), goal: goal,
		detail: fmt.Sprintf("%s against %s", brief(theirs), brief(ours)),
	}
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

// inTurn runs things one after the other, once to warm up and then b.runs
// times, and returns the median of each: what the machine does beside hits all
// alike.
func (b *bench) inTurn(things ...func() (time.Duration, error)) ([]time.Duration, error) {
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

// pair is inTurn for two.
func (b *bench) pair(ours, theirs func() error) (time.Duration, time.Duration, error) {
	medians, err := b.inTurn(timed(ours), timed(theirs))
	if err != nil {
		return 0, 0, err
	}
	return medians[0], medians[1], nil
}

func timed(f func() error) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		start := time.Now()
		err := f()
		return time.Since(start), err
	}
}

// quantile is the value below which a part q of them lies; of none it is 0.
func quantile[T time.Duration | float64](values []T, q float64) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
