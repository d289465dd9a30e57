package enforcement_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/servers"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// electors are controllers of one fleet that elect a leader by a real etcd.
type electors struct {
	t     *testing.T
	etcd  *servers.EtcdCluster
	fleet *sshd.Fleet
	ssh   string // the ssh_config of the fleet
	hosts []string
	dir   string
	env   []string // of the controllers
}

// elector is one of them.
type elector struct {
	*background
	cut *testfleet.Cut
}

func newElectors(t *testing.T, hosts ...string) *electors {
	servers.RequireEtcd(t)
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named(hosts...), Genv: genvtest.Program(t)})
	return &electors{
		t: t, etcd: servers.StartEtcd(t, 3), fleet: f, ssh: f.SSHConfig(), hosts: hosts, dir: t.TempDir(),
		env: []string{"TMPDIR=" + proctest.PublicDir(t, 0o700)}, // where one that is killed leaves a folder
	}
}

// start starts a controller, and waits until it has seen the hosts.
func (e *electors) start(name string, more ...string) *elector {
	e.t.Helper()
	d := e.begin(name, more...)
	d.next(func(c enforcement.CycleDocument) bool { return c.Answered == len(e.hosts) })
	return d
}

// startAs starts a controller, and waits until it has a role.
func (e *electors) startAs(role election.Role, name string, more ...string) *elector {
	e.t.Helper()
	d := e.start(name, more...)
	d.is(role)
	return d
}

func (e *electors) begin(name string, more ...string) *elector {
	e.t.Helper()
	cut := e.etcd.Cut(e.t)
	d := startDaemon(e.t, e.env, append([]string{
		"-F", e.ssh, "-H", strings.Join(e.hosts, ","), "--interval", "1", "--leader", "etcd://" + strings.Join(cut.Addresses(), ",") + "/genv/lab",
		"--state-dir", filepath.Join(e.dir, name), "--audit-log", filepath.Join(e.dir, name+".jsonl"),
	}, more...)...)
	return &elector{d, cut}
}

// is waits for a cycle in a role.
func (d *elector) is(role election.Role) enforcement.CycleDocument {
	d.t.Helper()
	return d.next(func(c enforcement.CycleDocument) bool {
		return c.Election.Role == role && c.Standby == (role != election.Leading)
	})
}

// violate starts a process outside any environment.
func (e *electors) violate(host string) *testfleet.Process {
	e.t.Helper()
	return genvtest.StartJob(e.t, e.fleet.Host(host), testfleet.Job{User: "alice", Uses: []testfleet.Use{{Device: 0, MiB: 100}}})
}

// ended waits until a process has ended, and returns how long that took.
func (e *electors) ended(job *testfleet.Process) time.Duration {
	e.t.Helper()
	begun := time.Now()
	require.Eventually(e.t, func() bool { return !job.Running() }, time.Minute, 10*time.Millisecond, "no controller acts")
	return time.Since(begun)
}

// Over real sshd, sudo and an etcd of three members: one controller acts, and another one goes on when it is killed,
// ends, is stopped, or is cut off from etcd. One that was replaced does nothing, and is a standby from then on.
func TestElection(t *testing.T) {
	t.Parallel()
	e := newElectors(t, "gpu-01", "gpu-02")
	const rule = "--non-env-processes"
	first := e.startAs(election.Leading, "first", rule)
	second := e.start("second", rule)
	require.Contains(t, second.is(election.Standby).Election.Leader, "process ")
	e.ended(e.violate("gpu-01"))

	first.signal(os.Kill)
	killed := e.violate("gpu-01")
	t.Log("after kill -9:", e.ended(killed))
	third := e.start("third", "--take-over") // without the rule
	third.is(election.Standby)
	third.says("--take-over has no effect until this controller leads")

	second.signal(syscall.SIGTERM)
	begun := time.Now()
	third.is(election.Leading)
	t.Log("after SIGTERM:", time.Since(begun))
	second.exits(command.ExitOK)
	fourth := e.startAs(election.Standby, "fourth", rule)
	unharmed := e.violate("gpu-02") // a violation for the fourth alone

	third.signal(syscall.SIGSTOP)
	fourth.is(election.Leading)
	t.Log("after SIGSTOP:", e.ended(unharmed))
	third.signal(syscall.SIGCONT)
	third.is(election.Standby)

	fifth := e.start("fifth") // without the rule
	third.signal(os.Kill)
	fourth.cut.Interrupt()
	fifth.is(election.Leading)
	fourth.is(election.Expired)
	unharmed = e.violate("gpu-02")
	fourth.says("etcd doesn't answer")
	fourth.cut.Mend()
	fourth.is(election.Standby)
	require.True(t, unharmed.Running(), "who has the rule doesn't lead")
}

// Who takes over goes on where the leader was: a finding has lasted as long, its user isn't
// warned again, and what operators asked for holds. It doesn't matter whether the controller
// that led has a folder that the other one could read.
func TestATakeOverContinues(t *testing.T) {
	t.Parallel()
	e := newElectors(t, "gpu-01")
	policy := policyFile(t, "defaults:\n  non-env-processes: true\n  warn: {for: 1h}\n")
	socket := filepath.Join(e.dir, "socket")
	first := e.startAs(election.Leading, "first", "--policy", policy, "--socket", socket)
	second := e.startAs(election.Standby, "second", "--policy", policy)
	job := e.violate("gpu-01")
	found := func(d *elector) enforcement.CycleDocument {
		return d.next(func(c enforcement.CycleDocument) bool { return !c.Standby && len(c.Findings) == 1 })
	}
	before := first.next(func(c enforcement.CycleDocument) bool { return len(c.Findings) == 1 && len(c.Notified) == 1 })
	exempt, _ := exec.Command(genvtest.Program(t), "remote", "exempt", "--socket", socket, "--host", "gpu-01", "--device", "7", "--for", "1h", "--reason", "a test").CombinedOutput()
	require.Contains(t, string(exempt), "exempt", "%s", exempt)

	first.signal(syscall.SIGTERM)
	after := found(second)
	require.Equal(t, before.Findings[0].ID, after.Findings[0].ID)
	require.WithinDuration(t, before.Findings[0].Since, after.Findings[0].Since, time.Millisecond)
	require.Len(t, after.Exemptions, 1)
	for range 3 {
		require.Empty(t, after.Notified, "the user was warned before")
		after = found(second)
	}
	require.True(t, job.Running())
}
