package sshd

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

const module = "github.com/seed-3119e985/genv/"

// Build builds a command of this module, such as "cmd/genv", for as long as the
// test lasts, and returns the program's path.
func Build(t testing.TB, command string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(command))
	if err := build(command, program); err != nil {
		t.Fatal(err)
	}
	return program
}

func build(command, program string) error {
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", program, module+command)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", command, err, out)
	}
	return nil
}

// install puts genv and the stand-in for nvidia-smi where hosts look for them:
// in a folder each, for there are hosts with GPUs and without genv.
func (f *Fleet) install() error {
	for _, folder := range []string{f.bin(), f.driver()} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			return err
		}
	}
	if err := build("remote/testfleet/gpus/nvidia-smi", filepath.Join(f.driver(), "nvidia-smi")); err != nil {
		return err
	}
	if slices.ContainsFunc(f.options.Hosts, func(h HostOptions) bool { return h.Rights == MaySudo143 }) {
		if err := os.Mkdir(f.bin143(), 0o755); err != nil {
			return err
		}
		if err := build("remote/testfleet/genv143", f.Genv143()); err != nil {
			return err
		}
	}
	if f.options.Genv == "" {
		return nil
	}
	program, err := os.ReadFile(f.options.Genv)
	if err != nil {
		return fmt.Errorf("install genv: %w", err)
	}
	return os.WriteFile(filepath.Join(f.bin(), "genv"), program, 0o755)
}
