package enforcement_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/cmd/genv/history"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// labPolicy says what the flags of lab.enforce say, and more.
const labPolicy = `
defaults:
  non-env-processes: true
  max-devices-per-user: 1
  warn: {cycles: 1}
  grace: 5s
overrides:
  - {users: [bob], set: {max-devices-per-user: 3}}
  - {users: [carol], set: {max-devices-per-user: 2}}
`

// screen is a terminal on which a user is logged in.
type screen struct{ *os.File }

func logIn(t *testing.T, user string) screen {
	master, tty, err := pty.Open()
	require.NoError(t, err)
	t.Cleanup(func() { _ = master.Close(); _ = tty.Close() })
	require.NoError(t, os.Chown(tty.Name(), int(uidOf(t, user)), 5)) // as login(1) does; 5 is the group tty
	require.NoError(t, os.Chmod(tty.Name(), 0o620))
	return screen{master}
}

// text is all that has appeared on the screen so far.
func (s screen) text(t *testing.T) string {
	var all bytes.Buffer
	for part := make([]byte, 64<<10); proctest.Readable(t, s.File, 100*time.Millisecond); {
		n := proctest.Try(s.Read(part)).OK(t)
		all.Write(part[:n])
	}
	return all.String()
}

// with enforces a policy on the lab, once unless more says otherwise.
func (l *lab) with(text string, more ...string) genvtest.Result {
	args := []string{"remote", "-F", l.SSHConfig(), "-H", "gpu-[01-03]", "enforce", "--policy", policyFile(l.t, text), "--interval", "0"}
	return genvtest.Run(l.t, append(args, more...)...)
}

func TestAPolicyOverRealSSH(t *testing.T) {
	l := openLab(t)
	log := filepath.Join(t.TempDir(), "audit.jsonl")
	alice, bob, carol := logIn(t, "alice"), logIn(t, "bob"), logIn(t, "carol")

	t.Run("a dry run says what would be done, and why", func(t *testing.T) {
		atOnce := strings.Replace(labPolicy, "warn: {cycles: 1}", "warn: false", 1)
		r := l.with(atOnce, "--dry-run", "--exit-code", "--audit-log", log).Exits(t, command.ExitWork)
		pid := l.guilty["bob on a device that is not attached"].PID
		require.Regexp(t, fmt.Sprintf(`\[gpu-02\] Would terminate process %d from environment \d+ that is running on GPU\(s\) 5 because: Process %d from environment \d+ is using non-attached GPU\(s\) 5 \(user bob, sleep.*\)\n`, pid, pid), r.Out)
		require.Zero(t, l.with(labPolicy, "--dry-run", "--exit-code").Code, "at first sight nothing would be done")
	})
	t.Run("above the limits nothing would be done", func(t *testing.T) {
		atOnce := strings.Replace(labPolicy, "warn: {cycles: 1}", "warn: false", 1)
		r := l.with(atOnce+"limits: {max-terminations: 1, max-percent: 1}\n", "--dry-run").Exits(t, command.ExitHeld)
		require.Regexp(t, "processes would be terminated, and max-terminations is 1. No action taken against user .* on host gpu-", r.Err)
		require.Contains(t, r.Err, "max-percent is ignored, and the next version refuses it: remove it, and use max-terminations, a number")
	})
	t.Run("at first sight users are told, and nothing is done", func(t *testing.T) {
		r := l.with(labPolicy, "--audit-log", log, "--format", "json").OK(t)
		document := genvtest.Decode[enforcement.CycleDocument](t, r)
		for _, f := range document.Findings {
			require.Equal(t, enforce.DecisionWait, f.Decision)
		}
		require.NotEmpty(t, document.Notified)
	})
	requireRunning(t, l.guilty)
	requireRunning(t, l.honest)
	require.Equal(t, attachedBefore, l.attachments())
	told := toldInLastRun(t, log)
	for user, s := range map[string]screen{"alice": alice, "bob": bob, "carol": carol} {
		require.NotEmpty(t, told[user])
		requireShown(t, s.text(t), told[user])
	}
	require.Equal(t, 2, matching(told["alice"], "^User alice has 4 GPUs on 2 hosts, and may have 1."), "on each host")
	require.Equal(t, 1, matching(told["bob"], fmt.Sprintf("^Process %d from environment", l.guilty["bob on a device that is not attached"].PID)))
	require.Equal(t, 1, matching(told["carol"], fmt.Sprintf(`^Process %d is not running in a GPU environment \(user carol, sleep.*\)\.\nUnless this changes soon, process`, l.guilty["carol outside any environment"].PID)))

	hook := filepath.Join(t.TempDir(), "hook")
	require.NoError(t, proctest.WriteProgram(hook, []byte("#!/bin/sh\n{ cat; echo; } >> $0.events\n")))
	r := l.with(labPolicy+"hooks: [{command: ["+hook+"]}]\n", "--audit-log", log, "--interval", "500ms", "--cycles", "4").OK(t)
	requireOnlyTheGuiltyEnded(t, l, r)
	t.Run("only the right ones are told", func(t *testing.T) {
		told := toldInLastRun(t, log)
		requireNamed(t, l.guilty, told)
		for user, s := range map[string]screen{"alice": alice, "bob": bob, "carol": carol} {
			text := s.text(t)
			requireShown(t, text, told[user])
			require.Contains(t, text, "SIGTERM now", user)
			for name, p := range l.guilty {
				if p.User != user {
					require.NotContains(t, text, fmt.Sprintf("rocess %d ", p.PID), "%s, to %s", name, user)
				}
			}
		}
	})
	t.Run("hooks are told", func(t *testing.T) {
		require.Regexp(t, `(?s)^\{"schema":"genv.hook/1","event":"warn".*\n\{"schema":"genv.hook/1","event":"act"`, genvtest.Read(t, hook+".events"))
	})
	t.Run("why was my job killed", func(t *testing.T) { requireHistory(t, l, log) })
	t.Run("users ask on the host", func(t *testing.T) { requireOwnHistory(t, l, log) })
}

func requireOnlyTheGuiltyEnded(t *testing.T, l *lab, r genvtest.Result) {
	for name, p := range l.guilty {
		require.False(t, p.Running(), "%s\n%s%s", name, r.Out, r.Err)
	}
	requireRunning(t, l.honest)
	requireRunning(t, l.shells)
	require.Equal(t, "gpu-01:0:alice gpu-02:2:bob gpu-02:3:bob gpu-03:0:bob gpu-03:1:carol gpu-03:2:carol", l.attachments())
}

func requireHistory(t *testing.T, l *lab, log string) {
	pid := l.guilty["bob over his memory: the smallest that frees enough"].PID
	r := genvtest.Run(t, "remote", "history", "--audit-log", log, "--user", "bob", "--pid", fmt.Sprint(pid), "--since", "1h", "--no-header").OK(t)
	require.Regexp(t, fmt.Sprintf(`^\S+ \S+ +gpu-02 +bob +process %d +terminated +[0-9a-f]{8}  Environment \d+ is using 5242m on device 2 which is 1242m over its capacity of 4g \(user bob\) \(notified at \S+\)\n$`, pid), r.Out)

	r = genvtest.Run(t, "remote", "history", "--audit-log", log, "--format", "json", "--host", "gpu-02")
	document := genvtest.Decode[history.EntriesDocument](t, r)
	status := map[order.OutcomeStatus]int{}
	for _, e := range document.Entries {
		status[e.Status]++
	}
	require.Equal(t, map[order.OutcomeStatus]int{order.StatusDetached: 2, order.StatusTerminated: 3}, status, "dry runs and held cycles did nothing")
	require.Equal(t, 2, strings.Count(genvtest.Run(t, "remote", "history", "--audit-log", log, "--user", "carol", "--no-header").Out, "terminated"), "outside of environments, too")
	require.Empty(t, genvtest.Run(t, "remote", "history", "--audit-log", log, "--user", "eve", "--no-header").Out)
}

// requireOwnHistory has alice ask genv on a host, as herself.
func requireOwnHistory(t *testing.T, l *lab, log string) {
	run := func(user string, args ...string) (string, error) {
		uid := uidOf(t, user)
		cmd := exec.Command(filepath.Join(l.Dir, "bin", "genv"), args...)
		cmd.Env = []string{"GENV_AUDIT_LOG=" + l.Host("gpu-02").AuditLog(), "PATH=/bin"}
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	ask := func(user string) string {
		out, err := run(user, "history", "--no-header")
		require.NoError(t, err, out)
		return out
	}
	t.Run("with the same record of a decision", func(t *testing.T) { requireSameDecision(t, log, run) })
	require.Equal(t, 3, strings.Count(ask("alice"), "\n"), "two devices and a process")
	require.Contains(t, ask("alice"), "User alice is using 4 devices on 2 hosts which is 3 more than the maximum allowed")
	require.NotContains(t, ask("alice"), "bob")
	require.Equal(t, 2, strings.Count(ask("bob"), "terminated"))
	require.Empty(t, ask("carol"), "nothing was done to her processes there")
}

// requireSameDecision: the host and the controller say the same of a decision, with the same id; and only to its user.
func requireSameDecision(t *testing.T, log string, run func(user string, args ...string) (string, error)) {
	r := genvtest.Run(t, "remote", "history", "--audit-log", log, "--host", "gpu-02", "--user", "alice", "--rule", "max-devices-per-user", "--format", "json")
	document := genvtest.Decode[history.EntriesDocument](t, r)
	require.NotEmpty(t, document.Entries)
	for _, e := range document.Entries {
		controller := genvtest.Run(t, "remote", "history", "--audit-log", log, e.ID).OK(t)
		require.Regexp(t, `(?m)^Judged +snapshot of gpu-02, \S+ \S+ UTC\n(.*\n)* +environment \d+ of user alice`, controller.Out)
		require.NotContains(t, controller.Out, "bob")
		host, err := run("alice", "why", "-v", e.ID)
		require.NoError(t, err, host)
		require.Equal(t, whatWasDecided(controller.Out), whatWasDecided(host))
		other, err := run("bob", "why", e.ID)
		require.Error(t, err)
		require.Regexp(t, "no decision "+e.ID+" is recorded", other)
	}
	last := proctest.Try(run("alice", "why")).OK(t)
	require.Regexp(t, `(?s)^What +[A-Z].*\nBecause .*\nWhat to do Before you take more GPUs.*genv detach --index .*\nDecision +[0-9a-f]{8}\n$`, last)
}

// whatWasDecided is a decision without what each machine notes by itself, such as its clock and its name.
func whatWasDecided(lines string) []string {
	var list []string
	for line := range strings.Lines(lines) {
		switch name, _, _ := strings.Cut(line, " "); name {
		case "Time", "Host", "By", "Notified", "User":
		default:
			list = append(list, line)
		}
	}
	return list
}

func TestNothingIsDoneWithoutALog(t *testing.T) {
	r := genvtest.Run(t, "remote", "-H", "none.invalid", "enforce", "--audit-log", "/no/such/folder/audit.jsonl").Exits(t, command.ExitFailed)
	require.Contains(t, r.Err, "open /no/such/folder/audit.jsonl: no such file or directory; nothing is done without a record (--act-unrecorded allows it)")
	for flag, value := range map[string]string{"--audit-size": "1k", "--audit-keep": "0"} {
		genvtest.Run(t, "remote", "-H", "none.invalid", "enforce", "--audit-log", filepath.Join(t.TempDir(), "log"), flag, value).Exits(t, command.ExitFailed, flag)
	}
}

func TestPolicyCommands(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	good := write("good.yaml", labPolicy)
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"check", good}, 0, "good.yaml: OK\n"},
		{[]string{"check", "../../../policy.example.yaml"}, 0, "policy.example.yaml: OK\n"},
		{[]string{"check", write("key.yaml", "defaults:\n  env-device: true\nlimits: {max-detachments: 1000001}\n")}, 1, `key.yaml:2:3: unknown key "env-device"; did you mean "env-devices"?`},
		{[]string{"check", write("key.yaml", "defaults:\n  env-device: true\nlimits: {max-detachments: 1000001}\n")}, 1, `key.yaml:3:27: max-detachments: 1000001 is not a whole number from 0 to 1000000`},
		{[]string{"check", write("cap.yaml", "defaults: {max-devices-per-user: -1}")}, 1, "cap.yaml:1:34: a cap of -1 is negative; write 0 or more, or false for no cap"},
		{[]string{"check", write("group.yaml", "overrides:\n  - {users: [\"@none\"], set: {idle: false}}")}, 1, "group.yaml:2:14: @none: no such group"},
		{[]string{"check", dir}, 1, "is a directory"},
		{[]string{"check", filepath.Join(dir, "none")}, 1, "no such file"},
		{[]string{"check"}, 1, "missing file"},
		{[]string{"explain", "--policy", good, "--user", "bob"}, 0, "max-devices-per-user    3          override for users bob, "},
		{[]string{"explain", "--policy", good, "--user", "bob", "--max-devices-per-user", "7"}, 0, "max-devices-per-user    7               --max-devices-per-user\n"},
		{[]string{"explain"}, 0, "env-devices             on              built in\n"},
		{[]string{"explain", "--policy", good, "--format", "csv"}, 0, "warn,{cycles: 1},"},
		{[]string{"explain", "--at", "noon"}, 1, "write it as 2026-11-20T22:00"},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			r := genvtest.Run(t, append([]string{"policy"}, tt.args...)...)
			require.Equal(t, tt.code, r.Code, r.Err)
			require.Contains(t, strings.Join(strings.Fields(r.Out+r.Err), " "), strings.Join(strings.Fields(tt.want), " "))
		})
	}
}

func TestExplainAsJSON(t *testing.T) {
	r := genvtest.Run(t, "policy", "explain", "--policy", "../../../policy.example.yaml", "--user", "bob", "--host", "gpu-04", "--inventory", "../../../hosts.example.yaml", "--at", "2026-11-20T10:00", "--format", "json")
	document := genvtest.Decode[fleet.ExplainDocument](t, r)
	require.Equal(t, "genv.policy.explain/1", document.Schema)
	require.Contains(t, document.Settings, policy.Explanation{Key: "max-devices-per-user", Value: "3", From: "override for users bob, ../../../policy.example.yaml:84:29"})
}

func TestADeviceIsFreeWhenItsProcessesAre(t *testing.T) {
	s := &snapshot.Snapshot{
		Devices:   []snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(1)}, {Index: 1, TotalMemory: snapshot.MiB(1)}},
		Processes: []snapshot.Process{{PID: 5, Usage: []snapshot.DeviceUsage{{Index: 1, Memory: snapshot.MiB(1)}}}},
	}
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "gpu-01", Handler: genvhost.New(s).Old()})
	for flag, want := range map[string]string{"--processes": "gpu-01,2,1\n", "--processes=false": "gpu-01,2,2\n"} {
		r := genvtest.Run(t, "remote", "-F", f.SSHConfig(), "-H", "gpu-01", "devices", "--format", "csv", "--no-header", "--no-summary", flag)
		require.Equal(t, genvtest.Result{Out: want}, r)
	}
}
