package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// commitRows compare the program with that of a commit, in turn. Each has hosts of its own, which run it, too.
func (b *bench) commitRows(ctx context.Context) (_ []row, err error) {
	if b.commit == "" {
		return nil, nil
	}
	dir, err := os.MkdirTemp("", "genv-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	older := *b
	if older.genv, err = build(dir, b.commit); err != nil {
		return nil, err
	}
	return b.overSSH(func(ctx context.Context, fleet *sshd.Fleet) ([]row, error) {
		return older.overSSH(func(ctx context.Context, olderFleet *sshd.Fleet) ([]row, error) {
			return compare(ctx, [2]*bench{b, &older}, [2]*sshd.Fleet{fleet, olderFleet})
		})(ctx)
	})(ctx)
}

// build builds the program of a commit, as that has it, in a folder.
func build(dir, commit string) (program string, err error) {
	program, tree := filepath.Join(dir, "genv"), filepath.Join(dir, "tree")
	if err := quietly(exec.Command("git", "worktree", "add", "--detach", tree, commit)); err != nil {
		return "", err
	}
	return program, errors.Join(
		quietly(exec.Command("make", "-C", tree, "build", "BIN="+program)),
		quietly(exec.Command("git", "worktree", "remove", "--force", tree)),
	)
}

// compare measures cold starts and steady cycles of two programs, each with its hosts.
func compare(ctx context.Context, programs [2]*bench, fleets [2]*sshd.Fleet) ([]row, error) {
	var cold, steady []func() (time.Duration, error)
	var cpu [2]time.Duration // of cycles, with that of the hosts
	for i, b := range programs {
		c, err := b.startSteady(ctx, fleets[i])
		if err != nil {
			return nil, err
		}
		defer c.end()
		cold = append(cold, b.cold(ctx, fleets[i]))
		steady = append(steady, func() (time.Duration, error) {
			before := cpuOfAll(fleets[i].Dir, c.cmd.Process.Pid)
			defer func() { cpu[i] += cpuOfAll(fleets[i].Dir, c.cmd.Process.Pid) - before }()
			return c.steady()
		})
	}
	b := programs[0]
	starts, errCold := b.inTurn(cold)
	cycles, errSteady := b.inTurn(steady)
	if err := errors.Join(errCold, errSteady); err != nil {
		return nil, err
	}
	return []row{
		b.result(contest{"cold one-shot", "≥ 1×", b.commit}, starts[0], starts[1]),
		b.result(contest{"steady cycle", "≥ 1.25×", b.commit}, cycles[0], cycles[1]),
		b.result(contest{"processor time of steady cycles", "", b.commit}, cpu[0], cpu[1]),
	}, nil
}
