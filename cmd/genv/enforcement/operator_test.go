package enforcement_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// What an operator asks for is recorded, and a hold and exemptions survive kill -9: over a real sshd and sudo.
func TestAnOperatorOverRealSSH(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	host := f.Host("gpu-01")
	job := genvtest.StartOutside(t, host, "bob", testfleet.Use{Device: 0, MiB: 100})
	dir := t.TempDir()
	path, log := filepath.Join(dir, "s"), filepath.Join(dir, "audit.jsonl")
	args := []string{
		"-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "60", "--socket", path, "--audit-log", log, "--state-dir", filepath.Join(dir, "state"),
	}
	daemon := startDaemon(t, nil, args...)
	daemon.next(func(c enforcement.CycleDocument) bool { return c.Answered == 1 })
	v := genvtest.View(t, path)
	proctest.Try(live.SendAction(t.Context(), path, operator.Action{Kind: operator.Hold, Reason: "until Monday"})).OK(t)
	proctest.Try(live.SendAction(t.Context(), path, operator.Action{Kind: operator.Exempt, User: "bob", Hours: 4, Reason: "deadline"})).OK(t)
	v.Wait("it is shown at once", func(f *live.FleetState) bool { return f.Hold != nil && len(f.Exemptions) == 1 })
	daemon.signal(os.Kill).end()

	again := startDaemon(t, nil, append(args, "--non-env-processes")...)
	cycle := again.next(func(c enforcement.CycleDocument) bool { return c.Answered == 1 })
	require.Equal(t, "until Monday", cycle.Hold.Reason)
	require.EqualValues(t, "bob", cycle.Exemptions[0].User)
	require.Contains(t, again.said(), "enforcement is on hold since")
	require.Empty(t, cycle.Findings, "bob is exempt")
	require.True(t, job.Running())
	again.signal(os.Interrupt).end()

	history := genvtest.Run(t, "remote", "history", "--audit-log", log).OK(t)
	for _, line := range []string{
		`hold .*root \(uid 0\) put enforcement on hold: until Monday`,
		`bob .*exempt .*root \(uid 0\) exempted user bob until .*: deadline`,
	} {
		require.Regexp(t, line, history.Out)
	}
}

func TestActionsNeedARecord(t *testing.T) {
	h := genvhost.New(outsiders(1))
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: h})
	hold := operator.Action{Kind: operator.Hold, Reason: "test"}
	for says, more := range map[string][]string{
		"keeps no record":            {"enforce"},
		"runs with --dry-run":        {"enforce", "--dry-run", "--audit-log", filepath.Join(t.TempDir(), "log")},
		"this is genv remote watch:": {"watch"},
	} {
		path := filepath.Join(t.TempDir(), "s")
		run := genvtest.Begin(t, append([]string{"remote", more[0], "-F", f.SSHConfig(), "-H", "a", "--interval", "100ms", "--socket", path}, more[1:]...)...)
		v := genvtest.View(t, path)
		v.Wait("a cycle", func(f *live.FleetState) bool { return f.Took > 0 })
		require.ErrorContains(t, proctest.Try(live.SendAction(t.Context(), path, hold)).Err, says)
		require.Equal(t, command.ExitOK, run.End(), run.Err.String())
	}
	require.Empty(t, h.Actions())
}

// A file that is something else is neither written to nor enforced over.
func TestTheAuditLogIsNoOtherFile(t *testing.T) {
	host := genvhost.New(outsiders(1))
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: host})
	const text = "root:x:0:0:root:/root:/bin/bash" // without an end of line, which a log would be given
	path := filepath.Join(t.TempDir(), "passwd")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	for _, more := range [][]string{nil, {"--act-unrecorded"}, {"--dry-run"}} {
		args := append([]string{"remote", "enforce", "-F", f.SSHConfig(), "-H", "a", "--non-env-processes", "--interval", "0", "--audit-log", path}, more...)
		r := genvtest.Run(t, args...)
		require.Equal(t, genvtest.Result{Code: command.ExitFailed, Err: "genv: --audit-log: " + path + ": the file exists and is not a record of genv; nothing was done: name another file\n"}, r)
	}
	require.Equal(t, text, genvtest.Read(t, path))
	require.Empty(t, host.Actions())
	require.Zero(t, f.Host("a").Counts().Connections)

	log := filepath.Join(t.TempDir(), "audit.jsonl")
	for range 2 { // one that begins, and one that goes on
		genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "a", "--non-env-processes", "--interval", "0", "--audit-log", log).OK(t)
	}
	require.Len(t, host.Actions(), 1)
}

// outsiders are processes in no environment, one on each of n devices.
func outsiders(n int) *snapshot.Snapshot {
	s := &snapshot.Snapshot{BootID: "b"}
	for i := range n {
		index := snapshot.DeviceIndex(i)
		s.Devices = append(s.Devices, snapshot.Device{Index: index, TotalMemory: snapshot.MiB(81559)})
		s.Processes = append(s.Processes, snapshot.Process{
			PID: snapshot.PID(1000 + i), Start: snapshot.StartTime(77 + i), Usage: []snapshot.DeviceUsage{{Index: index, Memory: snapshot.MiB(10)}},
		})
	}
	return s
}

// That limits hold cycles back is in each hook and log record, and once on stderr.
func TestHeldCyclesReachTheAdministrator(t *testing.T) {
	host := genvhost.New(outsiders(3))
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: host})
	dir := t.TempDir()
	hook, log, policy := filepath.Join(dir, "hook"), filepath.Join(dir, "audit.jsonl"), filepath.Join(dir, "policy.yaml")
	require.NoError(t, proctest.WriteProgram(hook, []byte("#!/bin/sh\n{ cat; echo; } >> $0.events\n")))
	text := "defaults: {non-env-processes: true}\nlimits: {max-terminations: 2}\nhooks: [{command: [" + hook + "], events: [hold]}]\n"
	require.NoError(t, os.WriteFile(policy, []byte(text), 0o600))
	r := genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "a", "--interval", "100ms", "--cycles", "3", "--policy", policy, "--audit-log", log).Exits(t, command.ExitHeld)
	require.Empty(t, host.Actions())
	require.Equal(t, 1, strings.Count(r.Err, "Safety limit exceeded: "), r.Err)
	for path, word := range map[string]string{hook + ".events": `"event":"hold"`, log: `"kind":"held"`} {
		require.Equal(t, 3, strings.Count(genvtest.Read(t, path), word), path)
	}
}

// A genv that crashes on a host is named with the first line of its crash, over a real sshd and sudo.
func TestACrashOnAHost(t *testing.T) {
	program := filepath.Join(t.TempDir(), "genv")
	script := "#!/bin/sh\necho 'panic: runtime error: index out of range [3] with length 3\n\ngoroutine 1 [running]:\nmain.main()' >&2\nexit 2\n"
	require.NoError(t, proctest.WriteProgram(program, []byte(script)))
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: program})
	for _, name := range []string{"devices", "enforce"} {
		args := []string{"remote", name, "-F", f.SSHConfig(), "-H", "gpu-01"}
		if name == "enforce" {
			args = append(args, "--interval", "0", "--dry-run", "--exit-code")
		}
		r := genvtest.Run(t, args...).Exits(t, command.ExitNoneLeft)
		require.Regexp(t, `command-failed \(1\)\n.*    gpu-01: genv crashed there: panic: runtime error: index out of range \[3\] with length 3\n`, r.Err)
	}
}

// Users have pseudonyms after the time that was asked for.
func TestUsersGetPseudonyms(t *testing.T) {
	t.Parallel()
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: genvhost.New(outsiders(0))})
	dir := usageOfTenDays(t)
	before := reported(t, "--state-dir", dir, "--since", "30d") // all that there is, also once another hour begins
	require.Equal(t, []string{"alice", "bob"}, before.Keys())
	d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "a", "--interval", "1", "--socket", "off", "--state-dir", dir, "--usage-names", "4d")
	seen := 0
	d.next(func(c enforcement.CycleDocument) bool { seen += c.Answered; return seen == 3 })
	d.signal(syscall.SIGTERM).end()
	require.NotContains(t, d.said(), "history can't")

	after := reported(t, "--state-dir", dir, "--since", "30d")
	require.Len(t, after.Rows, 4, "%v", after.Keys())
	require.Equal(t, before.Total.Attached, after.Total.Attached)
	nameless := 0
	for _, key := range after.Keys() {
		if usage.IsPseudonym(key) {
			nameless++
		}
	}
	require.Equal(t, 2, nameless)
	require.Equal(t, []string{"alice", "bob"}, reported(t, "--state-dir", dir, "--since", "3d").Keys())
}
