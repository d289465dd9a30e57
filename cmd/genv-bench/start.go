package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// starts is how often each program of startRows is started.
const starts = 200

// emptyProgram does nothing: a start of it is the least that a program in Go takes.
const emptyProgram = "package main\n\nfunc main() {}\n"

// startRows compares `genv version` with a program that does nothing. Every command of a user,
// every shim and every container pays for the init of all that genv links.
func (b *bench) startRows(ctx context.Context) (_ []row, err error) {
	dir, err := os.MkdirTemp("", "genv-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	source, empty := filepath.Join(dir, "main.go"), filepath.Join(dir, "empty")
	if err := os.WriteFile(source, []byte(emptyProgram), 0o600); err != nil {
		return nil, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", empty, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build an empty program: %w: %s", err, out)
	}
	var taken [2][]time.Duration
	for range starts {
		for i, words := range [][]string{{empty}, {b.genv, "version"}} {
			d, err := timed(exec.CommandContext(ctx, words[0], words[1:]...).Run)()
			if err != nil {
				return nil, err
			}
			taken[i] = append(taken[i], d)
		}
	}
	least, start := quantile(taken[0], 0.5), quantile(taken[1], 0.5)
	return []row{{
		what: "start: genv version / empty program", figure: fmt.Sprintf("%.2f", start.Seconds()/least.Seconds()), goal: "≤ 3.1", ratio: true,
		detail: fmt.Sprintf("%s and %s, medians of %d starts in turn", brief(start), brief(least), starts),
	}}, nil
}
