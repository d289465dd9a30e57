package enforcement_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// exits waits for the end, with an exit code.
func (d *background) exits(code int) {
	d.t.Helper()
	_, state := d.end()
	require.Equal(d.t, code, state.ExitCode(), d.said())
}

// says waits for words on stderr, which may arrive after the document of their cycle.
func (d *background) says(words string) {
	d.t.Helper()
	require.Eventually(d.t, func() bool { return strings.Contains(d.said(), words) }, time.Minute, 10*time.Millisecond, "%s", words)
}

// Over a real sshd and sudo: hosts refuse a second controller, which ends and says why, until
// it takes over; then they refuse the first one. A restart isn't another controller, also
// after kill -9, and one that ended in order leaves its hosts to others.
func TestTwoControllers(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01", "gpu-02"), Genv: genvtest.Program(t)})
	dir := t.TempDir()
	args := func(name string, more ...string) []string {
		return append([]string{"-F", f.SSHConfig(), "-H", "gpu-01,gpu-02", "--interval", "1", "--state-dir", filepath.Join(dir, name), "--audit-log", filepath.Join(dir, name+".jsonl")}, more...)
	}
	begin := func(name string, more ...string) *background {
		d := startDaemon(t, nil, args(name, more...)...)
		d.next(func(c enforcement.CycleDocument) bool { return c.Answered == 2 })
		return d
	}
	refused := func(name string, more ...string) *background {
		d := startDaemon(t, nil, args(name, more...)...)
		d.exits(command.ExitReplaced)
		require.Contains(t, d.said(), "2 hosts refused this controller, so it ends")
		return d
	}
	first := begin("first")
	genvtest.StartOutside(t, f.Host("gpu-01"), "alice", testfleet.Use{Device: 0, MiB: 100})
	require.Contains(t, refused("second").said(), fmt.Sprintf("process %d", first.cmd.Process.Pid))
	require.Contains(t, refused("second").said(), "start this one once with --take-over")
	begin("dry", "--dry-run")
	folder := filepath.Join(dir, "not-a-folder")
	require.NoError(t, os.WriteFile(folder, nil, 0o600))
	bare := startDaemon(t, []string{"STATE_DIRECTORY=" + folder}, "-F", f.SSHConfig(), "-H", "gpu-01,gpu-02", "--interval", "1")
	bare.exits(command.ExitReplaced)
	require.Contains(t, bare.said(), "this run keeps no memory")
	hooked := filepath.Join(dir, "hooked")
	policy := policyFile(t, "defaults: {non-env-processes: true, warn: 1h}\nhooks: [{command: [/bin/touch, "+hooked+"], events: [warn]}]\n")
	require.NotContains(t, refused("once", "--interval", "0", "--policy", policy).said(), "--take-over", "which is for loops")
	require.NoFileExists(t, hooked, "it warned of what it doesn't do")

	second := begin("second", "--take-over", "--no-env-memory")
	first.exits(command.ExitReplaced)
	first.says("2 hosts refused")
	refused("first")
	second.signal(os.Kill).end()
	second = begin("second")
	second.signal(os.Interrupt).exits(command.ExitOK)
	begin("first")
}

func TestADryRunTakesNoHostOver(t *testing.T) {
	genvtest.Run(t, "remote", "enforce", "-H", "gpu-01", "--dry-run", "--take-over").Exits(t, command.ExitFailed, "a dry run takes no host over")
}

// A controller that is stopped while another one takes its place does nothing when it goes on: its hosts refuse it.
func TestAFrozenControllerDoesNoHarm(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	dir := t.TempDir()
	begin := func(name string, more ...string) *background {
		d := startDaemon(t, nil, append([]string{"-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "1", "--state-dir", filepath.Join(dir, name), "--audit-log", filepath.Join(dir, name+".jsonl")}, more...)...)
		d.next(func(c enforcement.CycleDocument) bool { return c.Answered == 1 })
		return d
	}
	frozen := begin("frozen", "--non-env-processes")
	frozen.signal(syscall.SIGSTOP)
	next := begin("next", "--take-over")
	job := genvtest.StartJob(t, f.Host("gpu-01"), testfleet.Job{User: "alice", Uses: []testfleet.Use{{Device: 0, MiB: 100}}}) // a violation for the frozen one alone
	frozen.signal(syscall.SIGCONT).exits(command.ExitReplaced)
	next.next(func(c enforcement.CycleDocument) bool { return c.Answered == 1 })
	require.True(t, job.Running(), "it was not ended")
}

// A process that was asked to end gets no second SIGTERM from the next controller, and SIGKILL after its first grace.
func TestEachProcessIsAskedOnce(t *testing.T) {
	t.Parallel()
	proctest.NeedRoot(t)
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	dir, signals := t.TempDir(), filepath.Join(proctest.PublicDir(t, 0o777), "signals")
	policy := policyFile(t, "defaults: {non-env-processes: true, grace: 6s, kill: true}\n")
	begin := func(name string, more ...string) *background {
		return startDaemon(t, nil, append([]string{"-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "1", "--policy", policy, "--state-dir", filepath.Join(dir, name), "--audit-log", filepath.Join(dir, name+".jsonl")}, more...)...)
	}
	job := genvtest.StartJob(t, f.Host("gpu-01"), testfleet.Job{
		User: "alice", Uses: []testfleet.Use{{Device: 0, MiB: 100}}, Speaks: true,
		Command: []string{"/bin/sh", "-c", `trap 'echo SIGTERM >> "$0"' TERM; echo ready; while :; do sleep 0.1; done`, signals},
	})
	first := begin("first")
	require.Eventually(t, func() bool { _, err := os.Stat(signals); return err == nil }, time.Minute, 10*time.Millisecond)
	second := begin("second", "--take-over")
	second.next(func(c enforcement.CycleDocument) bool { return c.Answered == 1 })
	joins := job.Running() // or it took longer than the grace to get here
	first.exits(command.ExitReplaced)
	require.Eventually(t, func() bool { return !job.Running() }, time.Minute, 10*time.Millisecond)
	require.Equal(t, "SIGTERM\n", genvtest.Read(t, signals))
	if joins {
		require.Eventually(t, func() bool {
			record, err := os.ReadFile(filepath.Join(dir, "second.jsonl"))
			return err == nil && strings.Contains(string(record), "already under way: another order asked it to end ")
		}, time.Minute, 10*time.Millisecond)
	}
}

// A second Ctrl-C ends a controller although an order is under way. Its hosts refuse others, and not a restart.
func TestASecondInterrupt(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	dir := t.TempDir()
	policy := policyFile(t, "defaults: {non-env-processes: true, grace: 10m}\n")
	begin := func(name string) *background {
		return startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "1", "--policy", policy, "--state-dir", filepath.Join(dir, name), "--audit-log", filepath.Join(dir, name+".jsonl"))
	}
	first := begin("first")
	job := genvtest.StartJob(t, f.Host("gpu-01"), testfleet.Job{User: "alice", Uses: []testfleet.Use{{Device: 0, MiB: 100}}, IgnoreTerm: true}) // a violation for the frozen one alone
	first.next(func(c enforcement.CycleDocument) bool {
		return len(c.Findings) > 0 && c.Findings[0].Decision == "under-way"
	})
	by, _ := first.signalUntilItEnds(syscall.SIGINT)
	require.Equal(t, syscall.SIGINT, by, first.said())
	begin("second").exits(command.ExitReplaced)
	begin("first").next(func(c enforcement.CycleDocument) bool { return c.Answered == 1 })
	require.True(t, job.Running())
}
