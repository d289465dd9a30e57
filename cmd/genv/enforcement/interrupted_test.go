package enforcement_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// A host's genv is killed while it waits for processes to end: the outcome is unknown and stands in the log, nothing is
// sent again, and the next cycle judges what is there then.
func TestAHostsGenvIsKilledWithinAnOrder(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	h := f.Host("gpu-01")
	job := genvtest.StartJob(t, h, testfleet.Job{User: "bob", Env: genvtest.Outside, IgnoreTerm: true, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
	dir := t.TempDir()
	log, file := filepath.Join(dir, "audit.jsonl"), filepath.Join(dir, "policy.yaml")
	require.NoError(t, os.WriteFile(file, []byte("defaults: {non-env-processes: true, grace: 3s, kill: true}\n"), 0o600))
	run := genvtest.Begin(t, "remote", "-F", f.SSHConfig(), "-H", "gpu-01", "enforce", "--policy", file, "--audit-log", log, "--interval", "200ms")
	genvtest.Eventually(t, "the host records what it is about to do", func() bool { data, _ := os.ReadFile(h.AuditLog()); return bytes.Contains(data, []byte(`"report"`)) })
	killServe(t, f)
	genvtest.Eventually(t, "SIGKILL ends the process in the end", func() bool { return !job.Running() })
	genvtest.Eventually(t, "and that is recorded", func() bool {
		e, _, _ := audit.History(log, audit.Filter{})
		return len(e) > 1 && e[len(e)-1].Status == order.StatusKilled
	})
	run.End()

	entries, _, err := audit.History(log, audit.Filter{PID: job.PID})
	require.NoError(t, err)
	require.Equal(t, order.StatusUnknown, entries[0].Status, "%s\n%s", run.Out.String(), run.Err.String())
	require.Contains(t, entries[0].Reason, "what came of it is not known")
	there, _, err := audit.History(h.AuditLog(), audit.Filter{})
	require.NoError(t, err)
	require.Equal(t, order.StatusUnknown, there[0].Status, "the host did not know either")
	require.Equal(t, entries[0].Order, there[0].Order, "the two logs can be joined")
	orders := map[string]int{}
	_, err = audit.Scan(h.AuditLog(), func(r *audit.Record) error {
		if r.Kind == audit.KindOrder {
			orders[r.Order]++
		}
		return nil
	})
	require.NoError(t, err)
	for id, times := range orders {
		require.Equal(t, 1, times, "order %s was sent once", id)
	}
}

func killServe(t *testing.T, f *sshd.Fleet) {
	commands := proctest.Try(filepath.Glob("/proc/[0-9]*/cmdline")).OK(t)
	killed := 0
	for _, path := range commands {
		program, _ := os.Readlink(filepath.Join(filepath.Dir(path), "exe")) // gone meanwhile is no genv
		if !strings.HasPrefix(program, f.Dir) {
			continue // it may be another test's, whose memory does not answer
		}
		if words, _ := os.ReadFile(path); bytes.Contains(words, []byte("usage\x00serve")) {
			var pid int
			proctest.Try(fmt.Sscanf(path, "/proc/%d/", &pid)).OK(t)
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			killed++
		}
	}
	require.Equal(t, 1, killed)
}

// A policy that is wrong when SIGHUP has it read again changes nothing.
func TestThePolicyInForceStaysInForce(t *testing.T) {
	s := &snapshot.Snapshot{
		Devices:   []snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(1)}},
		Processes: []snapshot.Process{{PID: 5, Usage: []snapshot.DeviceUsage{{Index: 0, Memory: snapshot.MiB(1)}}}},
	}
	old := inprocess.Func(func(ctx context.Context, r *inprocess.Request) int { // genv 1.4.3
		if strings.Contains(r.Line, "usage serve") {
			fmt.Fprintln(r.Stderr, "genv usage: error: argument command: invalid choice: 'serve'")
			return 2
		}
		switch { // a process is judged once no screen is active on its GPU
		case strings.Contains(r.Line, "--query-gpu"):
			fmt.Fprint(r.Stdout, "\ngenv-data\n0, GPU-a, 81559, 0, 0, 31, 70.1, NVIDIA H100, 550.54, Disabled, Default, Disabled, 700.00\n\ngenv-data 0\n")
		default:
			return genvhost.New(s).Old().Handle(ctx, r)
		}
		return 0
	})
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "gpu-01", Handler: old})
	file := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write("defaults: {non-env-processes: true}\n")
	run := genvtest.Begin(t, "remote", "-F", f.SSHConfig(), "-H", "gpu-01", "enforce", "--policy", file, "--interval", "50ms", "--dry-run", "--format", "json")
	const finding = "Process 5 is not running in a GPU environment"
	found := func() int { return strings.Count(run.Out.String(), finding) }
	genvtest.Eventually(t, "the first cycle", func() bool { return found() > 0 })

	write("defaults: {non-env-process: false}\n")
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	genvtest.Eventually(t, "the mistake is said", func() bool {
		return strings.Contains(run.Err.String(), `policy.yaml:1:12: unknown key \"non-env-process\"`) || strings.Contains(run.Err.String(), `unknown key "non-env-process"`)
	})
	before := found()
	genvtest.Eventually(t, "and the policy is still in force", func() bool { return found() > before+2 })

	write("defaults: {non-env-processes: false}\n")
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	genvtest.Eventually(t, "one that is right is put into force", func() bool {
		n := found()
		time.Sleep(300 * time.Millisecond) // several cycles
		return n == found()
	})
}

// TestAnOrderIsFinishedWithoutAReader: its reader is gone before the first line is written.
func TestAnOrderIsFinishedWithoutAReader(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	h := f.Host("gpu-01")
	env := genvtest.Activate(t, h, testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0}})
	job := genvtest.StartJob(t, h, testfleet.Job{User: "alice", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
	envs := proctest.Try(snapshot.EncodeEnvironments([]snapshot.Environment{env.Environment})).OK(t)
	input := fmt.Sprintf(`{"terminate": {"processes": [{"pid": %d, "used_gpu_memory": [{"index": 0, "gpu_memory": "10mi"}], "eid": "%s"}]}, "detach": {"0": %s}}`,
		job.PID, env.EID, envs)
	session := exec.Command("ssh", "-F", f.SSHConfig(), "gpu-01", "sudo genv usage execute | true")
	session.Stdin = strings.NewReader(input)
	require.NoError(t, session.Run())
	select {
	case <-job.Ended():
	case <-time.After(30 * time.Second):
		require.Fail(t, "the device was detached, and its process goes on")
	}
}

// TestUpgradeUnderALoop: when a host's program is replaced, no cycle fails, and the new one serves soon.
func TestUpgradeUnderALoop(t *testing.T) {
	t.Parallel()
	sshd.Require(t)
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "gpu-01", GPUs: 1}}, Installable: true})
	driver := proctest.ReadFile(t, filepath.Join(f.Dir, "driver", "nvidia-smi"))
	require.NoError(t, proctest.WriteProgram(filepath.Join(f.Local(), "bin/nvidia-smi"), driver))
	install := func(program string) {
		r := genvtest.Exec(t, exec.Command(program, "remote", "install", "-F", f.SSHConfig(), "-H", "gpu-01", "--upgrade")).OK(t)
		require.NotContains(t, r.Out, "devices can't be listed")
	}
	install(genvtest.Program(t))
	d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "1", "--non-env-processes")
	for _, more := range []string{"", "2"} {
		if more != "" {
			install(genvtest.ProgramWith(t, more))
		}
		place := proctest.Try(os.Stat(filepath.Join(f.Local(), "bin/genv"))).OK(t)
		d.next(func(c enforcement.CycleDocument) bool {
			require.Empty(t, c.Failed)
			require.Equal(t, agent.ViaStream, c.Via["gpu-01"])
			return len(servedBy(t, place)) == 1
		})
		job := genvtest.StartOutside(t, f.Host("gpu-01"), "bob", testfleet.Use{Device: 0, MiB: 10})
		d.next(func(c enforcement.CycleDocument) bool {
			require.Empty(t, c.Failed)
			return !job.Running()
		})
	}
}

// servedBy are the processes of `genv usage serve` that run a file.
func servedBy(t *testing.T, program os.FileInfo) (pids []string) {
	t.Helper()
	processes := proctest.Try(filepath.Glob("/proc/[0-9]*")).OK(t)
	for _, proc := range processes {
		if exe, err := os.Stat(filepath.Join(proc, "exe")); err != nil || !os.SameFile(exe, program) {
			continue
		}
		if line, _ := os.ReadFile(filepath.Join(proc, "cmdline")); strings.Contains(string(line), "usage\x00serve") { // it may have ended
			pids = append(pids, filepath.Base(proc))
		}
	}
	return pids
}
