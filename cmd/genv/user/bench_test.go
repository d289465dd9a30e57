package user_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
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
	built := proctest.Try(genvtest.Programs()).OK(t)
	m := proctest.Try(testfleet.NewMachine(t.TempDir(), gpus.H100s("bench", 8), filepath.Join(built, "driver", "nvidia-smi"))).OK(t)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	d := &desk{machine: m, genv: filepath.Join(built, "bin", "genv")}
	require.NoError(t, proctest.WriteProgram(filepath.Join(m.Bin(), "docker"), []byte("#!/bin/sh\nexit 0\n")))
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

// commands are what runs at every prompt and in every job, what the shims run
// (the programs), and the least that the Python package could do.
func (d *desk) commands() map[string][]string {
	commands := map[string][]string{
		"status":             {d.genv, "status"},
		"devices":            {d.genv, "devices"},
		"nvidia-smi/shim":    {d.shim("nvidia-smi")},
		"nvidia-smi/program": {d.machine.NvidiaSMI()},
		"docker/shim":        {d.shim("docker"), "ps"},
		"docker/program":     {filepath.Join(d.machine.Bin(), "docker"), "ps"},
	}
	// The interpreter itself: what PATH has may be a script that looks for it.
	if python, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output(); err == nil {
		commands["python3"] = []string{strings.TrimSpace(string(python)), "-c", "pass"}
	}
	return commands
}

// BenchmarkCommand is the time of whole commands on a GPU host. The goals are a shim that takes at most 10 ms longer
// than its program, and at most half of the time that python3 takes to start.
func BenchmarkCommand(b *testing.B) {
	d := newDesk(b)
	for name, words := range d.commands() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				proctest.Output(b, d.command(words...))
			}
		})
	}
}

// What BenchmarkCommand measures are commands that work.
func TestCommandsOfTheBenchmark(t *testing.T) {
	d := newDesk(t)
	for _, words := range d.commands() {
		proctest.Output(t, d.command(words...))
	}
	out := proctest.Try(d.command(d.genv, "status").Output()).OK(t)
	require.Contains(t, string(out), "4g", "it runs in the environment")
}

// busyDesk has four environments with two devices each, and a process on each device.
func busyDesk(b *testing.B) *desk {
	b.Helper()
	d := newDesk(b)
	if os.Geteuid() == 0 { // root's processes are a special case
		d.machine.Account = func(string) (testfleet.Account, error) { return testfleet.Account{UID: 65534, Home: "/"}, nil }
	}
	for i := range snapshot.DeviceIndex(4) {
		env := proctest.Try(d.machine.Activate(testfleet.Environment{User: "nobody", Devices: []snapshot.DeviceIndex{2 * i, 2*i + 1}})).OK(b)
		for k := range snapshot.DeviceIndex(2) {
			proctest.Try(d.machine.StartJob(testfleet.Job{User: "nobody", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 2*i + k, MiB: 1000}}})).OK(b)
		}
	}
	return d
}

// BenchmarkUsageServe is the processor time that `genv usage serve` takes for a snapshot that did not change: its own
// (goal: 1 ms), and that of its children, which are nvidia-smi.
func BenchmarkUsageServe(b *testing.B) {
	d := busyDesk(b)
	cmd := d.command(d.genv, "usage", "serve", "--token", "t")
	cmd.Stderr = os.Stderr
	in, out := proctest.StartPiped(b, cmd)
	b.Cleanup(func() {
		_ = in.Close() // and so it ends
		_ = cmd.Wait()
	})
	stream := proctest.Try(agent.OpenStream(b.Context(), out, in, "t")).OK(b)
	revision := uint64(0)
	changed := func() bool {
		request := proctest.Try(json.Marshal(agent.SnapshotRequest{Revision: revision})).OK(b)
		data := proctest.Try(stream.Call(b.Context(), agent.RequestSnapshot, request)).OK(b)
		var answer agent.SnapshotAnswer
		require.NoError(b, json.Unmarshal(data, &answer))
		revision = answer.Revision
		return answer.Snapshot != nil
	}
	// Only state files that have not changed for some seconds are not read again.
	for begun := time.Now(); time.Since(begun) < 3*time.Second; {
		changed()
	}
	own, children := processorTimes(b, cmd.Process.Pid)
	for b.Loop() {
		require.False(b, changed())
	}
	ownAfter, childrenAfter := processorTimes(b, cmd.Process.Pid)
	reportCPU(b, ownAfter-own, childrenAfter-children)
}

// BenchmarkUsageSnapshot is the processor time of `genv usage snapshot`: its own, with its start (goal: 5 ms), and that
// of nvidia-smi, which is measured alone with the same questions.
func BenchmarkUsageSnapshot(b *testing.B) {
	d := busyDesk(b)
	run := func(words ...string) time.Duration {
		cmd := d.command(words...)
		proctest.Output(b, cmd)
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	var whole, children time.Duration
	for b.Loop() {
		whole += run(d.genv, "usage", "snapshot")
		b.StopTimer()
		for _, args := range [][]string{nvidiasmi.DevicesArgs(), nvidiasmi.AppsArgs()} {
			children += run(append([]string{d.machine.NvidiaSMI()}, args...)...)
		}
		b.StartTimer()
	}
	reportCPU(b, whole-children, children)
}

func reportCPU(b *testing.B, own, children time.Duration) {
	b.ReportMetric(float64(own.Microseconds())/float64(b.N), "own-CPU-µs/op")
	b.ReportMetric(float64(children.Microseconds())/float64(b.N), "nvidia-smi-CPU-µs/op")
}

// processorTimes are those of a process and of its children that have ended, in
// the kernel's unit: USER_HZ is 100 on every Linux that Go runs on.
func processorTimes(b *testing.B, pid int) (own, children time.Duration) {
	b.Helper()
	_, rest, _ := strings.Cut(proctest.ReadText(b, fmt.Sprintf("/proc/%d/stat", pid)), ") ")
	fields := strings.Fields(rest) // the first is field 3 of proc(5)
	ticks := func(number int) time.Duration {
		n := proctest.Try(strconv.Atoi(fields[number-3])).OK(b)
		return time.Duration(n) * 10 * time.Millisecond
	}
	return ticks(14) + ticks(15), ticks(16) + ticks(17)
}
