package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// eventRows are about a controller that acts when something happens on a host: how soon, and what that costs while nothing
// happens. Device nodes are regular files, which processes and the simulated nvidia-smi open as the real ones open nodes.
func (b *bench) eventRows(ctx context.Context, fleet *sshd.Fleet) ([]row, error) {
	var events []time.Duration
	var idle, polling time.Duration
	err := b.enforcing(ctx, fleet, 10*time.Second, "on", func(c *controlled) (err error) {
		if idle, err = c.idle(ctx, fleet); err == nil {
			events, err = violateAll(ctx, fleet)
		}
		return err
	})
	if err == nil {
		err = b.enforcing(ctx, fleet, time.Second, "off", func(c *controlled) (err error) {
			polling, err = c.idle(ctx, fleet)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	return []row{
		{
			what: fmt.Sprintf("violation to SIGTERM, p99, events, --interval 10s, %d hosts", b.hosts), figure: brief(quantile(events, 0.99)), goal: "≤ 150 ms",
			detail: fmt.Sprintf("p50 %s, p90 %s; %d violations within %s on constructed device nodes", brief(quantile(events, 0.5)), brief(quantile(events, 0.9)), len(events), spread),
		},
		{
			what: "CPU of an idle fleet, events at 10 s : polling at 1 s", figure: fmt.Sprintf("%.2f", idle.Seconds()/polling.Seconds()), goal: "< 1", ratio: true,
			detail: fmt.Sprintf("genv on the controller and %d hosts: %s and %s in %s", b.hosts, brief(idle), brief(polling), idleFor),
		},
	}, nil
}

// idleFor is for how long an idle fleet is measured.
const idleFor = 20 * time.Second

// idle is the processor time that a controller and all of its hosts take while nothing happens.
func (c *controlled) idle(ctx context.Context, fleet *sshd.Fleet) (time.Duration, error) {
	time.Sleep(2 * time.Second) // first waits, which end at once
	before := cpuOfAll(fleet.Dir, c.cmd.Process.Pid)
	select {
	case <-time.After(idleFor):
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	return cpuOfAll(fleet.Dir, c.cmd.Process.Pid) - before, nil
}

// cpuOfAll is the processor time of a controller and of all genv of a fleet, without the nvidia-smi that they ran: the
// kernel gives the time of ended children in 1/100 s. That is about 40 calls, and all hosts reach it in the same cycle.
func cpuOfAll(dir string, controller int) time.Duration {
	total := cpuOf(controller)
	links, _ := filepath.Glob("/proc/[0-9]*/exe") // the pattern is well formed
	for _, link := range links {
		program, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(program, dir) {
			continue // it has ended
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil && pid != controller {
			total += cpuOf(pid)
		}
	}
	return total
}

// spread is over how long the violations of violateAll are spread.
const spread = 20 * time.Second

// enforcing measures while a controller ends processes outside of environments. Its output is dropped.
func (b *bench) enforcing(ctx context.Context, fleet *sshd.Fleet, interval time.Duration, events string, measure func(*controlled) error) error {
	c, err := b.startController(ctx, fleet.SSHConfig(), b.names(), interval, "--non-env-processes", "--events", events)
	if err != nil {
		return err
	}
	defer c.end()
	go func() { // its output must flow
		for c.lines.Scan() {
		}
	}()
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	return measure(c)
}

// violateAll has a process break a rule on each host, at a random time, and returns the times until they were ended.
func violateAll(ctx context.Context, fleet *sshd.Fleet) ([]time.Duration, error) {
	times := make([]time.Duration, len(fleet.Hosts()))
	var group errgroup.Group
	for i, h := range fleet.Hosts() {
		group.Go(func() (err error) {
			times[i], err = violate(ctx, h)
			return err
		})
	}
	return times, group.Wait()
}

func violate(ctx context.Context, h *sshd.Host) (time.Duration, error) {
	time.Sleep(rand.N(spread)) //nolint:gosec // spreads load
	begun := time.Now()
	job, err := h.StartJob(testfleet.Job{User: "alice", Env: []string{"PATH=/usr/bin:/bin"}, Uses: []testfleet.Use{{Device: 0, MiB: 10}}, Opens: true})
	if err != nil {
		return 0, err
	}
	select {
	case <-job.Ended():
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-time.After(time.Minute):
		return 0, errors.New("a violation on " + h.Name + " was not ended within a minute")
	}
	if job.EndedBy() != syscall.SIGTERM {
		return 0, fmt.Errorf("the process on %s ended by %v", h.Name, job.EndedBy())
	}
	return time.Since(begun), nil
}
