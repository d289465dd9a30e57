package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/remote/sshfleet"
)

// bench holds what the rows share.
type bench struct {
	genv  string
	hosts int
	runs  int
	out   io.Writer
}

// row is a line of the table: a ratio or a figure, and the goal for it.
type row struct{ what, figure, goal, detail string }

func (b *bench) run(ctx context.Context) error {
	var rows []row
	for _, measure := range []func(context.Context) ([]row, error){b.hostRows, b.fleetRows} {
		more, err := measure(ctx)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tFIGURE\tGOAL\tDETAIL")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.what, r.figure, r.goal, r.detail)
	}
	return w.Flush()
}

// fleetRows measures against a fleet of real sshd.
func (b *bench) fleetRows(ctx context.Context) ([]row, error) {
	if err := sshfleet.Available(); err != nil {
		return []row{{what: "rows with real sshd", figure: "left out", detail: err.Error()}}, nil
	}
	names := make([]string, b.hosts)
	for i := range names {
		names[i] = fmt.Sprintf("gpu-%03d", i+1)
	}
	genv, err := filepath.Abs(b.genv)
	if err != nil {
		return nil, err
	}
	fleet, err := sshfleet.Open(sshfleet.Options{Hosts: sshfleet.Named(names...), Genv: genv})
	if err != nil {
		return nil, err
	}
	defer fleet.Close()
	ours, theirs, err := b.pair(
		func() error { return b.coldDevices(ctx, fleet, names) },
		func() error { return sshFanOut(ctx, fleet, names, 64, "sudo -n genv usage snapshot --type devices") },
	)
	if err != nil {
		return nil, err
	}
	return []row{{
		what:   fmt.Sprintf("cold one-shot, %d hosts: ssh fanned out / genv remote devices", b.hosts),
		figure: fmt.Sprintf("%.1f×", theirs.Seconds()/ours.Seconds()), goal: "≥ 4×",
		detail: fmt.Sprintf("ssh %.2f s, genv %.2f s", theirs.Seconds(), ours.Seconds()),
	}}, nil
}

func (b *bench) coldDevices(ctx context.Context, fleet *sshfleet.Fleet, names []string) error {
	cmd := exec.CommandContext(ctx, b.genv, "remote", "-F", fleet.SSHConfig(), "-H", strings.Join(names, ","), "devices")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("genv remote devices: %w: %s", err, out)
	}
	return nil
}

// sshFanOut is what an administrator would script: the same command on every
// host, some at a time.
func sshFanOut(ctx context.Context, fleet *sshfleet.Fleet, names []string, atOnce int, command string) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, name := range names {
		group.Go(func() error {
			out, err := exec.CommandContext(ctx, "ssh", "-F", fleet.SSHConfig(), name, command).CombinedOutput()
			if err != nil {
				return fmt.Errorf("ssh %s: %w: %s", name, err, out)
			}
			return nil
		})
	}
	return group.Wait()
}

// pair runs two things in turn, once to warm up and then b.runs times, and
// returns the median of each: what the machine does beside hits both alike.
func (b *bench) pair(ours, theirs func() error) (time.Duration, time.Duration, error) {
	var a, c []time.Duration
	for i := range b.runs + 1 {
		x, err := timed(ours)
		if err != nil {
			return 0, 0, err
		}
		y, err := timed(theirs)
		if err != nil {
			return 0, 0, err
		}
		if i > 0 {
			a, c = append(a, x), append(c, y)
		}
	}
	return median(a), median(c), nil
}

func timed(f func() error) (time.Duration, error) {
	start := time.Now()
	err := f()
	return time.Since(start), err
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
