package sshd

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/seed-3119e985/genv/remote/testfleet"
)

// Build builds a command of this module, such as "cmd/genv", for as long as the
// test lasts, and returns the program's path.
func Build(t testing.TB, command string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(command))
	if err := testfleet.InstallProgram(command, program); err != nil {
		t.Fatal(err)
	}
	return program
}

// install puts genv and the stand-in for nvidia-smi where hosts look for them:
// in a folder each, for there are hosts with GPUs and without genv.
func (f *Fleet) install() error {
	for _, folder := range []string{f.bin(), f.driver()} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			return err
		}
	}
	if err := testfleet.InstallProgram("remote/testfleet/gpus/nvidia-smi", filepath.Join(f.driver(), "nvidia-smi")); err != nil {
		return err
	}
	if slices.ContainsFunc(f.options.Hosts, func(h HostOptions) bool { return h.Rights == MaySudo143 }) {
		if err := os.Mkdir(f.bin143(), 0o755); err != nil {
			return err
		}
		if err := testfleet.InstallProgram("remote/testfleet/genv143", f.Genv143()); err != nil {
			return err
		}
	}
	if f.options.Genv == "" {
		return nil
	}
	return testfleet.CopyProgram(f.options.Genv, filepath.Join(f.bin(), "genv"))
}
