package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
			programs, fleets := [2]*bench{b, &older}, [2]*sshd.Fleet{fleet, olderFleet}
			rows, err := compare(ctx, programs, fleets, "")
			if err := cmp.Or(err, lighten(fleet), lighten(olderFleet)); err != nil {
				return nil, err
			}
			more, err := compare(ctx, programs, fleets, ", light nvidia-smi")
			return append(rows, more...), err
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

// lightSMI is a stand-in for nvidia-smi that takes 0.3 ms, so that it hides little of genv's own time: it prints what the
// usual one answered on the host before.
const lightSMI = `#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int n, char **args) {
	char file[4096], text[65536];
	unsigned question = 0;
	for (int i = 1; i < n; i++)
		for (char *c = args[i]; *c; c++) question = question * 33 + *c;
	snprintf(file, sizeof file, "%s.%u", getenv("GENV_SIM_GPUS"), question);
	int answer = open(file, O_RDONLY);
	if (answer >= 0) return write(1, text, read(answer, text, sizeof text)) < 0;
	setenv("ANSWER", file, 1);
	return execv(RECORD, args);
}`

// record is run with an answer's file in ANSWER, and asks the usual stand-in.
const record = "#!/bin/sh\n%s \"$@\" >$ANSWER.$$ && mv $ANSWER.$$ $ANSWER && exec cat $ANSWER\n"

// lighten gives a fleet the light stand-in.
func lighten(fleet *sshd.Fleet) error {
	light := filepath.Join(fleet.Dir, "driver", "nvidia-smi")
	recording, usual := light+".record", light+".usual"
	if err := os.Rename(light, usual); err != nil {
		return err
	}
	if err := os.WriteFile(recording, fmt.Appendf(nil, record, usual), 0o755); err != nil { //nolint:gosec // it is run
		return err
	}
	gcc := exec.Command("gcc", "-static", "-O2", "-s", "-xc", "-", "-o", light, fmt.Sprintf("-DRECORD=%q", recording))
	gcc.Stdin = strings.NewReader(lightSMI)
	return quietly(gcc)
}

// compare measures cold starts and steady cycles of two programs, each with its hosts.
func compare(ctx context.Context, programs [2]*bench, fleets [2]*sshd.Fleet, with string) ([]row, error) {
	var cold, steady []func() (time.Duration, error)
	var all, own [2][]time.Duration // processor time of cycles: of all genv, and of the controller
	for i, b := range programs {
		c, err := b.startSteady(ctx, fleets[i])
		if err != nil {
			return nil, err
		}
		defer c.end()
		cold = append(cold, b.cold(ctx, fleets[i]))
		steady = append(steady, func() (time.Duration, error) {
			pid := c.cmd.Process.Pid
			allBefore, ownBefore := cpuOfAll(fleets[i].Dir, pid), cpuOf(pid)
			took, err := c.steady()
			all[i] = append(all[i], (cpuOfAll(fleets[i].Dir, pid)-allBefore)/(steadyCycles+1))
			own[i] = append(own[i], (cpuOf(pid)-ownBefore)/(steadyCycles+1))
			return took, err
		})
	}
	b := programs[0]
	starts, errCold := b.inTurn(cold)
	cycles, errSteady := b.inTurn(steady)
	if err := errors.Join(errCold, errSteady); err != nil {
		return nil, err
	}
	result := func(what, goal string, own, other time.Duration) row {
		return b.result(contest{what + with, goal, b.commit}, own, other)
	}
	median := func(times []time.Duration) time.Duration { return quantile(times, 0.5) }
	return []row{
		result("cold one-shot", "≥ 1×", starts[0], starts[1]),
		result("steady cycle", "≥ 1×", cycles[0], cycles[1]),
		result("the controller's CPU of a cycle", "≥ 1×", median(own[0]), median(own[1])),
		result("CPU of all genv of a cycle", "≥ 1×", median(all[0]), median(all[1])),
	}, nil
}
