package enforcement_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

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
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// processOf is a process as viewers see it; nil if they don't.
func processOf(f *live.Fleet, pid snapshot.PID) *gpus.Process {
	for i := range f.Hosts {
		for j := range f.Hosts[i].GPUs {
			for k := range f.Hosts[i].GPUs[j].Processes {
				if p := &f.Hosts[i].GPUs[j].Processes[k]; p.PID == pid {
					return p
				}
			}
		}
	}
	return nil
}

// What an operator asks for, over a real sshd and sudo: it ends the process that was seen,
// within seconds although cycles are far apart; it is recorded on both sides; and a hold and
// exemptions survive kill -9.
func TestAnOperatorOverRealSSH(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	host := f.Host("gpu-01")
	env, err := host.Activate(testfleet.Environment{User: "bob"})
	require.NoError(t, err)
	require.NoError(t, host.Attach(env, 0, time.Now()))
	job := func(user string, e *testfleet.Env) *testfleet.Process {
		p, err := host.StartJob(testfleet.Job{User: user, Env: append([]string{e.Var()}, genvtest.Outside...), Uses: []testfleet.Use{{Device: 0, MiB: 100}}})
		require.NoError(t, err)
		return p
	}
	first, second := job("bob", env), job("bob", env)
	dir := t.TempDir()
	path, log := filepath.Join(dir, "s"), filepath.Join(dir, "audit.jsonl")
	args := []string{
		"-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "60", "--socket", path, "--audit-log", log, "--state-dir", filepath.Join(dir, "state"),
		"--events", "off", // or the job on the detached device is ended at once
	}
	daemon := startDaemon(t, nil, args...)
	daemon.next(func(c enforcement.CycleDocument) bool { return c.Answered == 1 })
	v := genvtest.View(t, path)
	fleet := v.Wait("both run", func(f *live.Fleet) bool { return processOf(f, first.PID) != nil && processOf(f, second.PID) != nil })
	seen := processOf(fleet, first.PID)
	require.EqualValues(t, "bob", seen.User)

	end := operator.Action{Kind: operator.Terminate, Host: "gpu-01", PID: first.PID, Start: seen.Start + 1, User: "bob", Reason: "test"}
	_, err = live.SendAction(t.Context(), path, end)
	require.ErrorContains(t, err, "it started at another time")
	end.Start = seen.Start
	answer, err := live.SendAction(t.Context(), path, end)
	require.NoError(t, err)
	require.Equal(t, "terminated", answer.Text)
	require.False(t, first.Running())
	require.True(t, second.Running())
	answer, err = live.SendAction(t.Context(), path, operator.Action{Kind: operator.Detach, Host: "gpu-01", Device: new(snapshot.DeviceIndex(0)), EID: env.EID, User: "bob", Reason: "test"})
	require.NoError(t, err)
	require.Equal(t, "detached", answer.Text)
	require.True(t, second.Running())
	_, err = live.SendAction(t.Context(), path, end)
	require.NoError(t, err, "still in the last snapshot: the host says what is there")

	_, err = live.SendAction(t.Context(), path, operator.Action{Kind: operator.Hold, Reason: "until Monday"})
	require.NoError(t, err)
	_, err = live.SendAction(t.Context(), path, operator.Action{Kind: operator.Exempt, User: "bob", Hours: 4, Reason: "deadline"})
	require.NoError(t, err)
	v.Wait("it is shown at once", func(f *live.Fleet) bool { return f.Hold != nil && len(f.Exemptions) == 1 })
	daemon.signal(os.Kill)
	daemon.end()

	again := startDaemon(t, nil, append(args, "--non-env-processes")...)
	cycle := again.next(func(c enforcement.CycleDocument) bool { return c.Answered == 1 })
	require.Equal(t, "until Monday", cycle.Hold.Reason)
	require.EqualValues(t, "bob", cycle.Exemptions[0].User)
	require.Contains(t, again.said(), "enforcement is on hold since")
	require.Empty(t, cycle.Findings, "bob is exempt")
	again.signal(os.Interrupt)
	again.end()

	history := genvtest.Run(t, "remote", "history", "--audit-log", log)
	require.Zero(t, history.Code, history.Err)
	for _, line := range []string{
		`gpu-01 .*bob .*process \d+ .*terminated .*Requested by root \(uid 0\): test`,
		`gpu-01 .*bob .*device 0 of \d+ .*detached .*Requested by root \(uid 0\): test`,
		`process \d+ .*gone .*Requested by`,
		`hold .*root \(uid 0\) put enforcement on hold: until Monday`,
		`bob .*exempt .*root \(uid 0\) exempted user bob until .*: deadline`,
	} {
		require.Regexp(t, line, history.Out)
	}
}

func TestActionsNeedARecord(t *testing.T) {
	h := genvhost.New(outsiders(1))
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: h})
	end := operator.Action{Kind: operator.Terminate, Host: "a", PID: 1000, Start: 77, Reason: "test"}
	for says, more := range map[string][]string{
		"keeps no record":            {"enforce"},
		"runs with --dry-run":        {"enforce", "--dry-run", "--audit-log", filepath.Join(t.TempDir(), "log")},
		"this is genv remote watch:": {"watch"},
	} {
		path := filepath.Join(t.TempDir(), "s")
		run := genvtest.Begin(t, append([]string{"remote", more[0], "-F", f.SSHConfig(), "-H", "a", "--interval", "100ms", "--socket", path}, more[1:]...)...)
		v := genvtest.View(t, path)
		v.Wait("a cycle", func(f *live.Fleet) bool { return f.Took > 0 })
		_, err := live.SendAction(t.Context(), path, end)
		require.ErrorContains(t, err, says)
		require.Equal(t, command.ExitOK, run.End(), run.Err.String())
	}
	require.Empty(t, h.Actions())
}
