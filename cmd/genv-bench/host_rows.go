package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
)

// hostRows measures what stands in every prompt and every job on a GPU host,
// against the smallest thing that the Python package could do: start Python.
func (b *bench) hostRows(ctx context.Context) ([]row, error) {
	desk, err := openDesk(ctx, b.genv)
	if err != nil {
		return nil, err
	}
	defer desk.close()
	python := desk.python(ctx)
	var rows []row
	for _, m := range []struct {
		what        string
		words, bare []string // bare is what the program behind a shim takes by itself
	}{
		{what: "genv status", words: []string{desk.genv, "status"}},
		{what: "genv devices", words: []string{desk.genv, "devices"}},
		{what: "nvidia-smi, the shim", words: []string{desk.shim("nvidia-smi")}, bare: []string{desk.driver("nvidia-smi")}},
		{what: "docker, the shim", words: []string{desk.shim("docker"), "ps"}, bare: []string{desk.driver("docker"), "ps"}},
	} {
		more, err := b.desk(ctx, desk, m.what, m.words, m.bare, python)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// desk measures one command: a row for its time and one for Python's.
func (b *bench) desk(ctx context.Context, d *desk, what string, words, bare []string, python string) ([]row, error) {
	const rounds = 6 // these take milliseconds: a median of a few says little
	many := *b
	many.runs *= rounds
	run := func(words []string) func() error { return func() error { return d.run(ctx, words) } }
	var own, beside time.Duration
	var err error
	if bare == nil {
		own, err = many.single(run(words))
	} else {
		own, beside, err = many.pair(run(words), run(bare))
	}
	if err != nil {
		return nil, err
	}
	extra := own - beside
	rows := []row{{what: what + ": beyond nvidia-smi's or docker's own time", figure: milliseconds(extra), goal: "≤ 10 ms", detail: milliseconds(own) + " in all"}}
	if python == "" {
		return append(rows, row{what: what + " / python3 -c pass", figure: "left out", goal: "≤ 0.5×", detail: "there is no python3 in PATH"}), nil
	}
	own, start, err := many.pair(run(words), run([]string{python, "-c", "pass"}))
	if err != nil {
		return nil, err
	}
	ratio := (own - beside).Seconds() / start.Seconds()
	return append(rows, row{
		what: what + " / python3 -c pass", figure: fmt.Sprintf("%.2f×", ratio), goal: "≤ 0.5×",
		detail: fmt.Sprintf("%s, %s %s", milliseconds(own-beside), filepath.Base(python), milliseconds(start)),
	}), nil
}

func (b *bench) single(f func() error) (time.Duration, error) {
	took, _, err := b.pair(f, func() error { return nil })
	return took, err
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }

// desk is a GPU host of eight simulated devices, with one environment.
type desk struct {
	dir, genv string
	environ   []string
	shell     *exec.Cmd // the environment's process
}

func openDesk(ctx context.Context, genv string) (*desk, error) {
	dir, err := os.MkdirTemp("", "genv-bench-")
	if err != nil {
		return nil, err
	}
	d := &desk{dir: dir}
	if err := d.furnish(ctx, genv); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *desk) furnish(ctx context.Context, genv string) (err error) {
	if d.genv, err = filepath.Abs(genv); err != nil {
		return err
	}
	for _, folder := range []string{"shims", "driver"} {
		if err := os.Mkdir(filepath.Join(d.dir, folder), 0o755); err != nil {
			return err
		}
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", d.driver("nvidia-smi"), "github.com/seed-3119e985/genv/remote/testfleet/gpus/nvidia-smi")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the stand-in for nvidia-smi: %w: %s", err, out)
	}
	if err := os.WriteFile(d.driver("docker"), []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		return err
	}
	for _, program := range []string{"nvidia-smi", "docker"} {
		if err := os.Symlink(d.genv, d.shim(program)); err != nil {
			return err
		}
	}
	host := gpus.Host{Devices: gpus.Devices("bench", 8, "NVIDIA H100 80GB HBM3", 81559)}
	if err := host.Write(filepath.Join(d.dir, "gpus.json")); err != nil {
		return err
	}
	return d.activate(ctx)
}

func (d *desk) activate(ctx context.Context) error {
	d.environ = append(os.Environ(),
		"PATH="+filepath.Join(d.dir, "driver")+":"+os.Getenv("PATH"), gpus.EnvFile+"="+filepath.Join(d.dir, "gpus.json"),
		"GENV_TMPDIR="+filepath.Join(d.dir, "state"), "GENV_ROOT_DIR="+filepath.Join(d.dir, "root"), "GENV_ENVIRONMENT_ID=bench")
	d.shell = exec.CommandContext(ctx, "sleep", "1000000")
	if err := d.shell.Start(); err != nil {
		return err
	}
	if err := d.run(ctx, []string{d.genv, "envs", "activate", "--eid", "bench", "--pid", strconv.Itoa(d.shell.Process.Pid), "--gpu-memory", "4g"}); err != nil {
		return err
	}
	return d.run(ctx, []string{d.genv, "devices", "attach", "--eid", "bench", "--count", "2"})
}

func (d *desk) shim(program string) string   { return filepath.Join(d.dir, "shims", program) }
func (d *desk) driver(program string) string { return filepath.Join(d.dir, "driver", program) }

func (d *desk) run(ctx context.Context, words []string) error {
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = d.environ
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, out)
	}
	return nil
}

// python is the interpreter itself, since what PATH has may be a script that
// only looks for it.
func (d *desk) python(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func (d *desk) close() error {
	if d.shell != nil && d.shell.Process != nil {
		_ = d.shell.Process.Kill()
		_ = d.shell.Wait() // it was killed
	}
	return os.RemoveAll(d.dir)
}
