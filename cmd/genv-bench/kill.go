package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

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
