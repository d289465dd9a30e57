package enforcement_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// Of two hosts with an old and a young process, one is for interactive work.
func TestOldProcessesEndWhereALabelSaysSo(t *testing.T) {
	host := func() *genvhost.Host {
		since := proctest.Try(proc.SinceBoot()).OK(t) // of this machine, which is the hosts'
		state := outsiders(2)
		state.Processes[1].Start = snapshot.StartTime(since / (10 * time.Millisecond))
		return genvhost.New(state)
	}
	interactive, batch := host(), host()
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: interactive}, &inprocess.Server{Name: "b", Handler: batch})
	dir := t.TempDir()
	hosts, policy, log := filepath.Join(dir, "hosts.yaml"), filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.jsonl")
	require.NoError(t, os.WriteFile(hosts, []byte("hosts: [{name: a, labels: {use: interactive}}, b]\n"), 0o600))
	require.NoError(t, os.WriteFile(policy, []byte("overrides: [{labels: {use: interactive}, set: {max-process-age: 1m, warn: {cycles: 1}}}]\n"), 0o600))
	r := genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", hosts, "--interval", "100ms", "--cycles", "3", "--policy", policy, "--audit-log", log).OK(t)
	require.Regexp(t, `\[a\] Process 1000 has been running for .*, and 1m are allowed \(waits`, r.Out)
	require.Empty(t, batch.Actions())
	actions := interactive.Actions()
	require.Len(t, actions, 1)
	require.Equal(t, snapshot.PID(1000), actions[0].Outcome.PID)
	require.Equal(t, order.StatusTerminated, actions[0].Outcome.Status)
	require.Contains(t, genvtest.Run(t, "remote", "history", "--audit-log", log, "--rule", "max-process-age").Out, "1000")
	explained := genvtest.Run(t, "policy", "explain", "--policy", policy, "--inventory", hosts, "--host", "a")
	require.Regexp(t, `max-process-age +1m +override for labels use=interactive`, explained.Out, explained.Err)
}

// Over a real sshd and sudo: the first look needs two calls of nvidia-smi, and one takes most of the time that a host
// has for an answer; on gpu-02 it takes more than that. What breaks a rule is ended, and what keeps the rules isn't.
func TestASlowDriverIsNotALostOne(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01", "gpu-02"), Genv: genvtest.Program(t)})
	var honest, others []*testfleet.Process
	for host, delay := range map[string]time.Duration{"gpu-01": 900 * time.Millisecond, "gpu-02": 1600 * time.Millisecond} {
		h := f.Host(host)
		require.NoError(t, h.ChangeDriver(func(d *gpus.Driver) { d.DelayMS = int(delay.Milliseconds()) }))
		env := genvtest.Activate(t, h, testfleet.Environment{User: "carol"})
		require.NoError(t, h.Attach(env, 1, time.Now()))
		honest = append(honest, genvtest.StartJob(t, h, testfleet.Job{User: "carol", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 1, MiB: 10}}}))
		others = append(others, genvtest.StartOutside(t, h, "bob", testfleet.Use{Device: 0, MiB: 10}))
	}
	d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "gpu-01,gpu-02", "--interval", "1", "--command-timeout", "1500ms", "--state-dir", t.TempDir(), "--non-env-processes")
	for _, p := range others {
		select {
		case <-p.Ended():
		case <-time.After(4 * time.Minute):
			require.Fail(t, "nothing was enforced")
		}
	}
	for _, p := range honest {
		require.True(t, p.Running())
	}
	d.signal(os.Interrupt).end()
}

// Processes with subordinate uids, outside of any user namespace, count for their account: with
// them no user has more than others. bob and carol have accounts in a range of alice.
func TestSubordinateUIDsOverSSH(t *testing.T) {
	shared := "alice:300000:10\nbob:300000:10\n"
	if !proctest.InEtc(t, map[string]string{"subuid": fmt.Sprintf("alice:100000:65536\nalice:%d:2\ndockremap:400000:10\n", uidOf(t, "bob")) + shared}) {
		return
	}
	b := openTampered(t, "gpu-01")
	h := b.Host("gpu-01")
	accounts := h.Account
	h.Account = func(user string) (testfleet.Account, error) {
		if uid, err := strconv.Atoi(user); err == nil {
			return testfleet.Account{UID: snapshot.UID(uid), Home: "/"}, nil
		}
		return accounts(user)
	}
	start := func(user, eid string, device snapshot.DeviceIndex) *testfleet.Process {
		return b.job("gpu-01", testfleet.Job{User: user, Env: []string{"GENV_ENVIRONMENT_ID=" + eid}, Uses: using(device)})
	}
	alice, bob := string(b.activate("gpu-01", "alice", 0).EID), string(b.activate("gpu-01", "bob", 1).EID)
	own := []*testfleet.Process{start("alice", alice, 0), start("100001", alice, 3), start("165535", alice, 4)}
	others := []*testfleet.Process{start("bob", bob, 1), start("carol", alice, 2), start("300001", alice, 5), start("400001", alice, 6), start("165536", alice, 7)}
	r := b.enforce("gpu-01", "--max-devices-per-user", "1", "--no-env-devices").OK(t)
	require.Contains(t, r.Out, "User alice is using 3 devices on 1 hosts which is 2 more than the maximum allowed")
	require.Len(t, slices.DeleteFunc(own, func(p *testfleet.Process) bool { return !p.Running() }), 1, r.Out)
	for _, p := range others {
		require.True(t, p.Running(), "%s: %s", p.User, r.Out)
	}

	first := start("54321", "7774", 3) // of no account
	b.forge(snapshot.Environment{EID: "7774", UID: 54321, PIDs: []snapshot.PID{first.PID}}, 3, 4)
	last := start("54321", "7774", 4)
	r = b.enforce("gpu-01", "--max-devices-per-user", "1", "--no-env-devices")
	require.Contains(t, r.Out, "uid 54321 is using 2 devices on 1 hosts which is 1 more than the maximum allowed")
	require.False(t, first.Running() && last.Running(), r.Out)
	require.True(t, others[0].Running(), r.Out)
}

// TestUnproved: over a real sshd and sudo, on a host with NVIDIA's device nodes: a process that the driver lists
// and that has none open is named and left alone, with who has one open; what it is attached to is taken.
func TestUnproved(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	h := f.Host("gpu-01")
	node := filepath.Join(h.Dev, "nvidiactl")
	if err := unix.Mknod(node, unix.S_IFCHR|0o666, int(unix.Mkdev(195, 255))); err != nil {
		t.Skip(err)
	}
	fd := proctest.Try(unix.Open(node, unix.O_PATH|unix.O_CLOEXEC, 0)).OK(t) // there is no driver to open it
	open := os.NewFile(uintptr(fd), node)
	defer open.Close()
	env := genvtest.Activate(t, h, testfleet.Environment{User: "bob"})
	require.NoError(t, h.Attach(env, 0, time.Now()))
	job := func(of []string, files []*os.File, uses ...testfleet.Use) *testfleet.Process {
		return genvtest.StartJob(t, h, testfleet.Job{User: "bob", Env: of, Uses: uses, Files: files})
	}
	use := testfleet.Use{Device: 0, MiB: 10}
	holder := job(genvtest.Outside, []*os.File{open})
	unproved := job([]string{env.Var()}, nil, use)
	proved := job(genvtest.Outside, []*os.File{open}, use)
	d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "1", "--state-dir", t.TempDir(), "--non-env-processes", "--max-devices-per-user", "0")
	<-proved.Ended()
	d.next(func(c enforcement.CycleDocument) bool {
		return slices.ContainsFunc(c.Notes, func(n enforce.Note) bool {
			return strings.Contains(n.Text, "(unproved), and counted for nobody: process "+strconv.Itoa(int(holder.PID))+" of the same user")
		})
	})
	d.next(func(enforcement.CycleDocument) bool {
		return len(genvtest.Devices(t, h)[0].Attachments) == 0
	})
	require.True(t, unproved.Running())
	d.signal(os.Interrupt).end()
}
