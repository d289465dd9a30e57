package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// atOnce is how many hosts ssh(1) works on at a time.
const atOnce = 64

// sshFanOut is what an administrator would script: the same command on every
// host, some at a time.
func sshFanOut(ctx context.Context, fleet *sshd.Fleet, names []string, command string) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, name := range names {
		group.Go(func() error { return quietly(exec.CommandContext(ctx, "ssh", "-F", fleet.SSHConfig(), name, command)) })
	}
	return group.Wait()
}

func quietly(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, out[:min(len(out), 2000)])
	}
	return nil
}

// coldRows is one command on every host, from nothing.
func (b *bench) coldRows(ctx context.Context, fleet *sshd.Fleet) ([]row, error) {
	return b.against(ctx, fleet, contest{"cold one-shot", "≥ 4×", "genv usage snapshot --type devices"}, timed(func() error {
		return quietly(exec.CommandContext(ctx, b.genv, "remote", "-F", fleet.SSHConfig(), "-H", strings.Join(b.names(), ","), "devices"))
	}))
}

// steadyRows is one cycle of enforcement, with everything that hosts do for it.
func (b *bench) steadyRows(ctx context.Context, fleet *sshd.Fleet) ([]row, error) {
	c, err := b.startController(ctx, fleet.SSHConfig(), b.names(), 500*time.Millisecond)
	if err != nil {
		return nil, err
	}
	defer c.end()
	return b.against(ctx, fleet, contest{"steady cycle", "≥ 50×", "sudo -n genv usage snapshot"}, func() (time.Duration, error) {
		cycles, err := c.cycles(5)
		return quantile(cycles, 0.5), err
	})
}

// contest is what is measured, its goal, and the command that ssh(1) runs on each host.
type contest struct{ what, goal, command string }

// against measures genv and ssh(1) in turn. While ssh runs, a controller is stopped.
func (b *bench) against(ctx context.Context, fleet *sshd.Fleet, c contest, ours func() (time.Duration, error)) ([]row, error) {
	medians, err := b.inTurn([]func() (time.Duration, error){ours, timed(func() error { return sshFanOut(ctx, fleet, b.names(), c.command) })})
	if err != nil {
		return nil, err
	}
	own, other := medians[0], medians[1]
	return []row{{
		what: fmt.Sprintf("%s, %d hosts of real sshd, against ssh", c.what, b.hosts), ratio: true, goal: c.goal,
		figure: fmt.Sprintf("%.1f×", other.Seconds()/own.Seconds()), detail: fmt.Sprintf("%s against %s", brief(other), brief(own)),
	}}, nil
}
