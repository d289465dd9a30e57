package enforcement_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/cmd/genv/history"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
)

// Over a real sshd and sudo: a dry run with a new policy runs alongside the controller. It records what
// the policy would do, and takes nothing that is the controller's: neither its state folder, nor its
// hosts, nor the log and the listeners of config.yaml. The controller goes on acting.
func TestTryAPolicy(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	host, dir := f.Host("gpu-01"), t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	sockets := []string{filepath.Join(dir, "socket"), filepath.Join(dir, "web")}
	write("policy.yaml", "defaults: {non-env-processes: true}\n")
	write("config.yaml", "enforce:\n  hosts: gpu-01\n  ssh-config: "+f.SSHConfig()+"\n  interval: 200ms\n  state-dir: "+dir+"/state\n"+
		"  audit-log: "+dir+"/real.jsonl\n  socket: "+sockets[0]+"\n  web: unix:"+sockets[1]+"\n")
	strict := write("new.yaml", "defaults: {non-env-processes: false, max-devices-per-user: 1}\n")
	begin := func(args ...string) *background {
		d := startDaemon(t, []string{"GENV_CONFIG_DIR=" + dir, "GENV_SOCKET="}, args...)
		d.next(func(c enforcement.CycleDocument) bool { return c.Answered == 1 })
		return d
	}
	try := []string{"--dry-run", "--policy", strict, "--socket", "off", "--audit-log", filepath.Join(dir, "try.jsonl"), "--state-dir", filepath.Join(dir, "try")}

	env, err := host.Activate(testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0, 1}})
	require.NoError(t, err)
	own, err := host.StartJob(testfleet.Job{User: "alice", Env: append(genvtest.Outside, env.Var()), Uses: []testfleet.Use{{Device: 0, MiB: 10}, {Device: 1, MiB: 10}}})
	require.NoError(t, err)
	before := begin("--dry-run", "--policy", strict) // with the controller's own folder, before it starts
	for _, path := range sockets {
		require.NoFileExists(t, path)
	}
	controller, dry := begin(), begin(try...)
	for _, path := range sockets {
		require.FileExists(t, path)
	}
	violate := func() {
		job, err := host.StartJob(testfleet.Job{User: "bob", Env: genvtest.Outside, Uses: []testfleet.Use{{Device: 5, MiB: 10}}})
		require.NoError(t, err)
		require.Eventually(t, func() bool { return !job.Running() }, time.Minute, 10*time.Millisecond, "%s", controller.said())
	}
	violate()
	controller.signal(os.Interrupt)
	controller.end()
	controller = begin() // while both dry runs go on
	violate()
	for _, d := range []*background{before, controller, dry} {
		d.next(func(c enforcement.CycleDocument) bool { return c.Answered == 1 })
	}
	require.True(t, own.Running())
	attached, err := host.Devices()
	require.NoError(t, err)
	require.Len(t, attached[1].Attachments, 1)
	require.NoDirExists(t, filepath.Join(dir, "try"))
	require.NotContains(t, controller.said(), "nother controller")
	controller.signal(os.Interrupt)
	controller.end() // it waits for the outcome: that the job has ended was seen before

	stats := func(log string) (s history.StatsDocument) {
		r := genvtest.Run(t, "remote", "history", "--audit-log", filepath.Join(dir, log), "--stats", "--format", "json")
		require.Zero(t, r.Code, r.Err)
		require.NoError(t, json.Unmarshal([]byte(r.Out), &s))
		return s
	}
	require.Equal(t, []audit.StatsRow{{User: "alice", Rule: enforce.RuleMaxDevicesPerUser, ActionCounts: audit.ActionCounts{WouldTerminate: 1, WouldDetach: 1}}}, stats("try.jsonl").Rows)
	rows := stats("real.jsonl").Rows
	require.Len(t, rows, 1)
	rows[0].Warned = 0 // a notice that is recorded before the outcome counts as a warning
	require.Equal(t, []audit.StatsRow{{User: "bob", Rule: enforce.RuleNonEnvProcesses, ActionCounts: audit.ActionCounts{Terminated: 2}}}, rows)
	r := genvtest.Run(t, "remote", "history", "--audit-log", filepath.Join(dir, "try.jsonl"), "--notices")
	require.Equal(t, 2, strings.Count(r.Out, "dry-run"), r.Out)
}

// Over a real sshd and sudo: what breaks a rule is ended long before the next cycle, also while a user has the same
// host opened all the time, and nothing else is. kill -9 of the controller ends what waits on the hosts.
func TestEventsOverSSH(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01", "gpu-02"), Genv: genvtest.Program(t)})
	env, err := f.Host("gpu-01").Activate(testfleet.Environment{User: "carol", Devices: nil})
	require.NoError(t, err)
	require.NoError(t, f.Host("gpu-01").Attach(env, 1, time.Now()))
	flood, err := f.Host("gpu-01").StartJob(testfleet.Job{User: "alice", Command: []string{
		"/bin/sh", "-c", `while :; do : <"$0"; done`, filepath.Join(f.Host("gpu-01").Dev, "nvidia3"),
	}})
	require.NoError(t, err)
	d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "gpu-01,gpu-02", "--interval", "120", "--state-dir", t.TempDir(), "--non-env-processes")
	d.next(func(c enforcement.CycleDocument) bool { return c.Answered == 2 })

	begun := time.Now()
	honest, err := f.Host("gpu-01").StartJob(testfleet.Job{User: "carol", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 1, MiB: 10}}, Opens: true})
	require.NoError(t, err)
	for _, host := range []string{"gpu-02", "gpu-01", "gpu-02"} {
		p, err := f.Host(host).StartJob(testfleet.Job{User: "bob", Env: genvtest.Outside, Uses: []testfleet.Use{{Device: 0, MiB: 10}}, Opens: true})
		require.NoError(t, err)
		select {
		case <-p.Ended():
		case <-time.After(time.Minute):
			require.Fail(t, "it was not ended before the next cycle", host)
		}
	}
	require.Less(t, time.Since(begun), 110*time.Second)
	require.True(t, honest.Running())
	require.True(t, flood.Running())

	d.signal(os.Kill)
	d.end()
	require.Eventually(t, func() bool { return !runs(filepath.Join(f.Dir, "bin", "genv")) }, 20*time.Second, 20*time.Millisecond, "genv on the hosts ends")
}

// runs reports whether any process runs a program.
func runs(program string) bool {
	links, _ := filepath.Glob("/proc/[0-9]*/exe") // the pattern is well formed
	for _, link := range links {
		if path, err := os.Readlink(link); err == nil && strings.TrimSuffix(path, " (deleted)") == program {
			return true
		}
	}
	return false
}
