package main

import (
	"bytes"
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

// sshFanOut is what an administrator would script: the same command on every host, some at a time.
func sshFanOut(ctx context.Context, fleet *sshd.Fleet, names []string, command string) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, name := range names {
		group.Go(func() error { return quietly(exec.CommandContext(ctx, "ssh", "-F", fleet.SSHConfig(), name, command)) })
	}
	return group.Wait()
}

func quietly(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, out[:min(len(out), 2000)])
	}
	return nil
}

// coldRows is one command on every host, from nothing.
func (b *bench) coldRows(ctx context.Context, fleet *sshd.Fleet) ([]row, error) {
	return b.againstSSH(ctx, fleet, contest{"cold one-shot", "≥ 4×", "ssh"}, "genv usage snapshot --type devices", b.cold(ctx, fleet))
}

func (b *bench) cold(ctx context.Context, fleet *sshd.Fleet) func() (time.Duration, error) {
	return timed(func() error {
		return quietly(exec.CommandContext(ctx, b.genv, "remote", "-F", fleet.SSHConfig(), "-H", strings.Join(b.names(), ","), "devices"))
	})
}

// steadyRows is one cycle of enforcement, with everything that hosts do for it.
func (b *bench) steadyRows(ctx context.Context, fleet *sshd.Fleet) ([]row, error) {
	c, err := b.startSteady(ctx, fleet)
	if err != nil {
		return nil, err
	}
	defer c.end()
	return b.againstSSH(ctx, fleet, contest{"steady cycle", "≥ 50×", "ssh"}, "sudo -n genv usage snapshot", c.steady)
}

// startSteady starts a controller without events, with which a cycle would begin hosts one after the other. Old versions have none.
func (b *bench) startSteady(ctx context.Context, fleet *sshd.Fleet) (*controlled, error) {
	var flags []string
	if help, _ := exec.CommandContext(ctx, b.genv, "remote", "enforce", "--help").Output(); bytes.Contains(help, []byte("--events ")) {
		flags = []string{"--events", "off"}
	}
	return b.startController(ctx, fleet.SSHConfig(), b.names(), 500*time.Millisecond, flags...)
}

// steadyCycles is of how many cycles steady is the median; one more runs before them.
const steadyCycles = 5

func (c *controlled) steady() (time.Duration, error) {
	cycles, err := c.cycles(steadyCycles)
	return quantile(cycles, 0.5), err
}

// contest is what is measured, its goal, and what it is compared with.
type contest struct{ what, goal, other string }

// againstSSH measures genv and a command by ssh(1) in turn. While ssh runs, a controller is stopped.
func (b *bench) againstSSH(ctx context.Context, fleet *sshd.Fleet, c contest, command string, ours func() (time.Duration, error)) ([]row, error) {
	medians, err := b.inTurn([]func() (time.Duration, error){ours, timed(func() error { return sshFanOut(ctx, fleet, b.names(), command) })})
	if err != nil {
		return nil, err
	}
	return []row{b.result(c, medians[0], medians[1])}, nil
}

// result is how much faster genv was than the other.
func (b *bench) result(c contest, own, other time.Duration) row {
	return row{
		what: fmt.Sprintf("%s, %d hosts of real sshd, against %s", c.what, b.hosts, c.other), ratio: true, goal: c.goal,
		figure: fmt.Sprintf("%.3g×", other.Seconds()/own.Seconds()), detail: fmt.Sprintf("%s against %s", brief(other), brief(own)),
	}
}
