package enforcement_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/cmd/genv/history"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
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

	env := genvtest.Activate(t, host, testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0, 1}})
	own := genvtest.StartJob(t, host, testfleet.Job{User: "alice", Env: append(genvtest.Outside, env.Var()), Uses: []testfleet.Use{{Device: 0, MiB: 10}, {Device: 1, MiB: 10}}})
	before := begin("--dry-run", "--policy", strict) // with the controller's own folder, before it starts
	for _, path := range sockets {
		require.NoFileExists(t, path)
	}
	controller, dry := begin(), begin(try...)
	for _, path := range sockets {
		require.FileExists(t, path)
	}
	violate := func() {
		job := genvtest.StartOutside(t, host, "bob", testfleet.Use{Device: 5, MiB: 10})
		require.Eventually(t, func() bool { return !job.Running() }, time.Minute, 10*time.Millisecond, "%s", controller.said())
	}
	violate()
	controller.signal(os.Interrupt).end()
	controller = begin() // while both dry runs go on
	violate()
	for _, d := range []*background{before, controller, dry} {
		d.next(func(c enforcement.CycleDocument) bool { return c.Answered == 1 })
	}
	require.True(t, own.Running())
	require.Len(t, genvtest.Devices(t, host)[1].Attachments, 1)
	require.NoDirExists(t, filepath.Join(dir, "try"))
	require.NotContains(t, controller.said(), "nother controller")
	controller.signal(os.Interrupt).end() // it waits for the outcome: that the job has ended was seen before

	stats := func(log string) history.StatsDocument {
		r := genvtest.Run(t, "remote", "history", "--audit-log", filepath.Join(dir, log), "--stats", "--format", "json").OK(t)
		return genvtest.Decode[history.StatsDocument](t, r)
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
	env := genvtest.Activate(t, f.Host("gpu-01"), testfleet.Environment{User: "carol", Devices: nil})
	require.NoError(t, f.Host("gpu-01").Attach(env, 1, time.Now()))
	flood := genvtest.StartJob(t, f.Host("gpu-01"), testfleet.Job{User: "alice", Command: []string{
		"/bin/sh", "-c", `while :; do : <"$0"; done`, filepath.Join(f.Host("gpu-01").Dev, "nvidia3"),
	}})
	d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "gpu-01,gpu-02", "--interval", "120", "--state-dir", t.TempDir(), "--non-env-processes")
	d.next(func(c enforcement.CycleDocument) bool { return c.Answered == 2 })

	begun := time.Now()
	honest := genvtest.StartJob(t, f.Host("gpu-01"), testfleet.Job{User: "carol", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 1, MiB: 10}}, Opens: true})
	for _, host := range []string{"gpu-02", "gpu-01", "gpu-02"} {
		p := genvtest.StartJob(t, f.Host(host), testfleet.Job{User: "bob", Env: genvtest.Outside, Uses: []testfleet.Use{{Device: 0, MiB: 10}}, Opens: true})
		select {
		case <-p.Ended():
		case <-time.After(time.Minute):
			require.Fail(t, "it was not ended before the next cycle", host)
		}
	}
	require.Less(t, time.Since(begun), 110*time.Second)
	require.True(t, honest.Running())
	require.True(t, flood.Running())

	d.signal(os.Kill).end()
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

// peopled is a host of four GPUs with these processes.
func peopled(boot string, processes ...snapshot.Process) *snapshot.Snapshot {
	s := &snapshot.Snapshot{BootID: boot, Processes: processes}
	for i := range 4 {
		s.Devices = append(s.Devices, snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MiB(81559)})
	}
	return s
}

// Who is not in an environment, and what turning the rule on would end: of each user on all hosts, after
// warnings. Exempt people, and those in their environments, aren't named.
func TestDryRunByUser(t *testing.T) {
	t.Parallel()
	process := func(pid snapshot.PID, user string, uid snapshot.UID, devices ...snapshot.DeviceIndex) snapshot.Process {
		p := snapshot.Process{PID: pid, Start: snapshot.StartTime(pid), Username: snapshot.Username(user), UID: &uid}
		for _, index := range devices {
			p.Usage = append(p.Usage, snapshot.DeviceUsage{Index: index, Memory: snapshot.MiB(10)})
		}
		return p
	}
	carols := process(12, "carol", 1003, 3)
	carols.EID = "7"
	first := peopled("1", process(10, "bob", 1002, 0, 1), process(11, "bob", 1002, 1), carols, process(13, "eve", 1005, 2))
	first.Environments = []snapshot.Environment{{EID: "7", UID: 1003, Username: "carol"}, {EID: "8", UID: 1002, Username: "bob"}}
	first.Devices[2].Attachments = []snapshot.Attachment{{EID: "8"}}
	second := peopled("2", process(10, "bob", 1002, 0), process(20, "", 1004, 1), snapshot.Process{PID: 21, Start: 21, Usage: []snapshot.DeviceUsage{{Index: 1}}})
	hosts := []*genvhost.Host{genvhost.New(first), genvhost.New(second)}
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "gpu-01", Handler: hosts[0]}, &inprocess.Server{Name: "gpu-02", Handler: hosts[1]})
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	run := func(text string, args ...string) genvtest.Result {
		require.NoError(t, os.WriteFile(policy, []byte(text), 0o600))
		return genvtest.Run(t, append([]string{"remote", "enforce", "-F", f.SSHConfig(), "-H", "gpu-01,gpu-02", "--policy", policy, "--dry-run", "--interval", "0", "--by", "user"}, args...)...)
	}
	const warned = "defaults: {warn: 1d, max-devices-per-user: 0}\nexempt: {users: [eve]}\n"
	r := run(warned, "--non-env-processes").OK(t)
	require.Equal(t, `USER      PROCESSES  GPUS  WOULD-TERMINATE  WOULD-DETACH  RULES                                   HOSTS
-         1          1     1                0             non-env-processes                       gpu-02
bob       3          4     3                1             max-devices-per-user,non-env-processes  gpu-[01-02]
carol     1          1     1                0             env-devices,max-devices-per-user        gpu-01
uid 1004  1          1     1                0             non-env-processes                       gpu-02
`, r.Out)

	require.Contains(t, r.Err, "2 hosts answered, 8 findings: 6 processes would end, 1 GPU would be detached, after a warning\n")

	r = run(warned+"limits: {max-terminations-per-host: 1}\n", "--non-env-processes", "--format", "json")
	d := genvtest.Decode[enforcement.CycleDocument](t, r)
	require.Len(t, d.ByUser, 4)
	bob, err := json.Marshal(d.ByUser[1])
	require.NoError(t, err)
	require.JSONEq(t, `{"user": "bob", "rules": ["max-devices-per-user", "non-env-processes"], "hosts": ["gpu-01", "gpu-02"],
		"processes": 3, "gpus": 4, "would_terminate": 3, "would_detach": 1}`, string(bob))
	require.NotEmpty(t, d.Findings)

	held := run("limits: {max-terminations-per-user: 1}\n", "--non-env-processes", "--no-env-devices")
	require.Equal(t, command.ExitHeld, held.Code)
	require.Contains(t, held.Out, "\nbob       3          3     1                0  ")

	require.Contains(t, held.Err, "2 hosts answered, 6 findings: 4 processes would end\n", "not what safety limits hold back")

	caps := run("caps: [{name: one, gpus: 1}, {memory: 1g}]\ndefaults: {non-env-processes: count}\n")
	require.Equal(t, `USER   PROCESSES  GPUS  WOULD-TERMINATE  WOULD-DETACH  RULES        CAPS             HOSTS
bob    2          3     2                1             caps         one: 4 of 1 GPU  gpu-01
carol  1          1     1                0             env-devices                   gpu-01
`, caps.Out)

	require.Contains(t, run("defaults: {idle: {after: 2h}}\n").Err, "; what is idle isn't known after one look; ")

	quiet := run("exempt: {hosts: [\"gpu-[01-02]\"]}\n")
	require.Empty(t, quiet.Out)
	require.Contains(t, quiet.Err, "2 hosts answered, 0 findings: nothing would be done\n")
	for _, host := range hosts {
		require.Empty(t, host.Actions())
	}
}

func TestByUserIsForOneDryRun(t *testing.T) {
	for want, args := range map[string][]string{
		"--by is about what would be done now: it needs --dry-run and --interval 0": {"--by", "user", "--interval", "0"},
		"it needs --dry-run and --interval 0":                                       {"--by", "user", "--dry-run"},
		`--by "host": write user`:                                                   {"--by", "host", "--dry-run", "--interval", "0"},
	} {
		genvtest.Run(t, append([]string{"remote", "enforce", "-H", "a"}, args...)...).Exits(t, command.ExitFailed, want)
	}
}
