package user_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
)

// desk is a simulated GPU host for measurements: with shims, a docker that does
// nothing, and an environment with two of eight devices.
type desk struct {
	machine *testfleet.Machine
	genv    string
	env     string // puts a command in the environment
}

func newDesk(t testing.TB) *desk {
	t.Helper()
	built, err := genvtest.Programs()
	require.NoError(t, err)
	m, err := testfleet.NewMachine(t.TempDir(), gpus.H100s("bench", 8), filepath.Join(built, "driver", "nvidia-smi"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	d := &desk{machine: m, genv: filepath.Join(built, "bin", "genv")}
	require.NoError(t, os.WriteFile(filepath.Join(m.Bin(), "docker"), []byte("#!/bin/sh\nexit 0\n"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(m.Dir, "shims"), 0o755))
	for _, program := range []string{"nvidia-smi", "docker"} {
		require.NoError(t, os.Symlink(d.genv, d.shim(program)))
	}
	env, err := m.Activate(testfleet.Environment{
		Config: snapshot.EnvConfig{GPUMemory: snapshot.MustMemory("4g")}, Devices: []snapshot.DeviceIndex{0, 1},
	})
	require.NoError(t, err)
	d.env = env.Var()
	return d
}

func (d *desk) shim(program string) string { return filepath.Join(d.machine.Dir, "shims", program) }

func (d *desk) command(words ...string) *exec.Cmd {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(d.machine.Environ(), d.env)
	return cmd
}

// benchmarked is a command and its name in the benchmark's output.
type benchmarked struct {
	name  string
	words []string
}

// commands are what runs at every prompt and in every job, what the shims run
// (the programs), and the least that the Python package could do.
func (d *desk) commands() []benchmarked {
	commands := []benchmarked{
		{"status", []string{d.genv, "status"}},
		{"devices", []string{d.genv, "devices"}},
		{"nvidia-smi/shim", []string{d.shim("nvidia-smi")}},
		{"nvidia-smi/program", []string{d.machine.NvidiaSMI()}},
		{"docker/shim", []string{d.shim("docker"), "ps"}},
		{"docker/program", []string{filepath.Join(d.machine.Bin(), "docker"), "ps"}},
	}
	// The interpreter itself: what PATH has may be a script that looks for it.
	if python, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output(); err == nil {
		commands = append(commands, benchmarked{"python3", []string{strings.TrimSpace(string(python)), "-c", "pass"}})
	}
	return commands
}

// BenchmarkCommand is the time of whole commands on a GPU host. The goals are a
// shim that takes at most 10 ms longer than its program, and at most half of the
// time that python3 takes to start.
func BenchmarkCommand(b *testing.B) {
	d := newDesk(b)
	for _, c := range d.commands() {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				out, err := d.command(c.words...).CombinedOutput()
				require.NoError(b, err, string(out))
			}
		})
	}
}

// What BenchmarkCommand measures are commands that work.
func TestCommandsOfTheBenchmark(t *testing.T) {
	d := newDesk(t)
	for _, c := range d.commands() {
		out, err := d.command(c.words...).CombinedOutput()
		require.NoError(t, err, "%s: %s", c.name, out)
	}
	out, err := d.command(d.genv, "status").Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "4g", "it runs in the environment")
}
