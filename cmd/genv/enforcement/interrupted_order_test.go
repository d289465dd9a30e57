package enforcement_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
)

// A host's genv is killed while it waits for processes to end: the outcome is
// unknown and stands in the log, nothing is sent again, and the next cycle judges
// what is there then.
func TestAHostsGenvIsKilledWithinAReport(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	h := f.Host("gpu-01")
	job, err := h.StartJob(testfleet.Job{User: "bob", Env: genvtest.Outside, IgnoreTerm: true, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
	require.NoError(t, err)
	dir := t.TempDir()
	log, file := filepath.Join(dir, "audit.jsonl"), filepath.Join(dir, "policy.yaml")
	require.NoError(t, os.WriteFile(file, []byte("defaults: {non-env-processes: true, grace: 3s, kill: true}\n"), 0o600))
	run := genvtest.Begin(t, "remote", "-F", f.SSHConfig(), "-H", "gpu-01", "enforce", "--policy", file, "--audit-log", log, "--interval", "200ms")
	genvtest.Eventually(t, "the host records what it is about to do", func() bool { data, _ := os.ReadFile(h.AuditLog()); return bytes.Contains(data, []byte(`"report"`)) })
	killServe(t, f)
	genvtest.Eventually(t, "SIGKILL ends the process in the end", func() bool { return !job.Running() })
	genvtest.Eventually(t, "and that is recorded", func() bool {
		e, _, _ := audit.History(log, audit.Filter{})
		return len(e) > 1 && e[len(e)-1].Status == enforce.StatusKilled
	})
	run.End()

	entries, _, err := audit.History(log, audit.Filter{PID: job.PID})
	require.NoError(t, err)
	require.Equal(t, enforce.StatusUnknown, entries[0].Status, "%s\n%s", run.Out.String(), run.Err.String())
	require.Contains(t, entries[0].Reason, "what came of it is not known")
	there, _, err := audit.History(h.AuditLog(), audit.Filter{})
	require.NoError(t, err)
	require.Equal(t, enforce.StatusUnknown, there[0].Status, "the host did not know either")
	require.Equal(t, entries[0].Report, there[0].Report, "the two logs can be joined")
	reports := map[string]int{}
	_, err = audit.Scan(h.AuditLog(), func(r *audit.Record) error {
		if r.Kind == audit.KindReport {
			reports[r.Report]++
		}
		return nil
	})
	require.NoError(t, err)
	for id, times := range reports {
		require.Equal(t, 1, times, "report %s was sent once", id)
	}
}

// killServe kills the genv that serves the fleet's host.
func killServe(t *testing.T, f *sshd.Fleet) {
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	killed := 0
	for _, path := range commands {
		words, _ := os.ReadFile(path) // gone meanwhile is no genv
		program, _ := os.Readlink(filepath.Join(filepath.Dir(path), "exe"))
		if strings.HasPrefix(program, f.Dir) && bytes.Contains(words, []byte("usage\x00serve")) {
			var pid int
			_, err := fmt.Sscanf(path, "/proc/%d/", &pid)
			require.NoError(t, err)
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
		return genvhost.New(s).Old().Handle(ctx, r)
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
