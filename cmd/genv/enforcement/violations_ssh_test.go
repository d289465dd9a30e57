package enforcement_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// lab is three hosts of real OpenSSH, sudo, users and processes, with violations of every kind and honest people.
type lab struct {
	*sshd.Fleet
	t     *testing.T
	start time.Time
	guilty, honest,
	shells map[string]*testfleet.Process
}

func openLab(t *testing.T) *lab {
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01", "gpu-02", "gpu-03"), Genv: genvtest.Program(t)})
	l := &lab{
		Fleet: f, t: t, start: time.Date(2026, 11, 20, 10, 0, 0, 0, time.Local),
		guilty: map[string]*testfleet.Process{}, honest: map[string]*testfleet.Process{}, shells: map[string]*testfleet.Process{},
	}
	l.alice()
	l.bob()
	l.carol()
	return l
}

// activate starts an environment; its devices are attached at minute, minute+1, …
func (l *lab) activate(host, user string, minute int, capacity string, devices ...snapshot.DeviceIndex) *testfleet.Env {
	var config snapshot.EnvConfig
	if capacity != "" {
		config.GPUMemory = snapshot.MustMemory(capacity)
	}
	env := genvtest.Activate(l.t, l.Host(host), testfleet.Environment{User: user, Config: config, At: l.start})
	for i, d := range devices {
		require.NoError(l.t, l.Host(host).Attach(env, d, l.start.Add(time.Duration(minute+i)*time.Minute)))
	}
	l.shells[fmt.Sprintf("%s's shell on %s (%s)", user, host, env.EID)] = env.Shell
	return env
}

// job starts a process; what becomes of it is the caller's to say.
func (l *lab) job(fate map[string]*testfleet.Process, name, host, user string, env *testfleet.Env, uses ...testfleet.Use) {
	job := testfleet.Job{User: user, Env: genvtest.Outside, Uses: uses}
	if env != nil {
		job.Env = append(job.Env, env.Var())
	}
	fate[name] = genvtest.StartJob(l.t, l.Host(host), job)
}

// alice has a cap of 1 and holds 4 devices on two hosts: two idle, two busy.
func (l *lab) alice() {
	e1 := l.activate("gpu-01", "alice", 0, "", 0, 1)
	e2 := l.activate("gpu-02", "alice", 10, "", 0, 1)
	l.job(l.honest, "alice's oldest job keeps the device it is allowed", "gpu-01", "alice", e1, testfleet.Use{Device: 0, MiB: 1000})
	l.job(l.guilty, "alice's newest job is beyond her cap", "gpu-02", "alice", e2, testfleet.Use{Device: 1, MiB: 1000})
}

// bob has a cap of 3 and holds 3, is over his memory on one, and uses one that is not his.
func (l *lab) bob() {
	e := l.activate("gpu-02", "bob", 0, "4g", 2, 3)
	l.activate("gpu-03", "bob", 0, "", 0)
	l.job(l.honest, "bob within his memory", "gpu-02", "bob", e, testfleet.Use{Device: 2, MiB: 3000})
	l.job(l.guilty, "bob over his memory: the smallest that frees enough", "gpu-02", "bob", e, testfleet.Use{Device: 2, MiB: 2000})
	l.job(l.guilty, "bob on a device that is not attached", "gpu-02", "bob", e, testfleet.Use{Device: 5, MiB: 10})
}

// carol has a cap of 2 and holds 2. One job is in no environment, and one claims an environment that isn't registered.
func (l *lab) carol() {
	e := l.activate("gpu-03", "carol", 0, "", 1, 2)
	l.job(l.honest, "carol's job on both her devices", "gpu-03", "carol", e, testfleet.Use{Device: 1, MiB: 70000}, testfleet.Use{Device: 2, MiB: 70000})
	l.job(l.guilty, "carol outside any environment", "gpu-03", "carol", nil, testfleet.Use{Device: 4, MiB: 10})
	l.guilty["carol with a bogus environment"] = genvtest.StartJob(l.t, l.Host("gpu-01"), testfleet.Job{User: "carol", Env: []string{"GENV_ENVIRONMENT_ID=bogus"}, Uses: []testfleet.Use{{Device: 7, MiB: 10}}})
	l.honest["carol's job without a GPU"] = genvtest.StartJob(l.t, l.Host("gpu-01"), testfleet.Job{User: "carol"})
}

func (l *lab) enforce(more ...string) genvtest.Result {
	args := []string{
		"remote", "-F", l.SSHConfig(), "-H", "gpu-[01-03]", "enforce", "--interval", "0",
		"--non-env-processes", "--max-devices-per-user", "1", "--max-devices-for-user", "bob=3", "carol=2",
	}
	return genvtest.Run(l.t, append(args, more...)...)
}

func (l *lab) attachments() string {
	var lines []string
	for _, h := range l.Hosts() {
		devices := genvtest.Devices(l.t, h)
		envs := proctest.Try(h.Environments()).OK(l.t)
		owner := map[snapshot.EnvID]snapshot.Username{}
		for _, e := range envs {
			owner[e.EID] = e.Username
		}
		for _, d := range devices {
			for _, a := range d.Attachments {
				lines = append(lines, fmt.Sprintf("%s:%s:%s", h.Name, d.Index, owner[a.EID]))
			}
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, " ")
}

const attachedBefore = "gpu-01:0:alice gpu-01:1:alice gpu-02:0:alice gpu-02:1:alice gpu-02:2:bob gpu-02:3:bob gpu-03:0:bob gpu-03:1:carol gpu-03:2:carol"

func requireRunning(t *testing.T, processes map[string]*testfleet.Process) {
	for name, p := range processes {
		require.True(t, p.Running(), name)
	}
}

func TestEnforceOverRealSSH(t *testing.T) {
	l := openLab(t)

	dry := l.enforce("--dry-run").OK(t)
	requireRunning(t, l.guilty)
	requireRunning(t, l.honest)
	require.Equal(t, attachedBefore, l.attachments(), "a dry run changes nothing")
	require.Equal(t, len(l.guilty), strings.Count(dry.Out, "Would terminate process"), dry.Out)
	require.Equal(t, 3, strings.Count(dry.Out, "Would detach environment"), dry.Out)

	done := l.enforce().OK(t)
	for name, p := range l.guilty {
		require.False(t, p.Running(), "%s\n%s%s", name, done.Out, done.Err)
	}
	requireRunning(t, l.honest)
	requireRunning(t, l.shells)
	require.Equal(t, "gpu-01:0:alice gpu-02:2:bob gpu-02:3:bob gpu-03:0:bob gpu-03:1:carol gpu-03:2:carol", l.attachments())
	require.Contains(t, done.Out, "User alice is using 4 devices on 2 hosts which is 3 more than the maximum allowed\n")
	require.Contains(t, done.Out, fmt.Sprintf("[gpu-01] Process %d is not running in a GPU environment (user carol, sleep", l.guilty["carol with a bogus environment"].PID))
	require.Contains(t, done.Out, "which is 1242m over its capacity of 4g (user bob)\n")
	require.Equal(t, len(l.guilty), strings.Count(done.Out, "Terminating process "), done.Out)
	require.Positive(t, strings.Index(done.Out, "of user alice from device 0"), done.Out)

	again := l.enforce().OK(t)
	require.Empty(t, again.Out, "there is nothing left to do")
	require.Contains(t, again.Err, "3 hosts answered, 0 findings: nothing was done\n")
	requireRunning(t, l.honest)
}

// TestHostsThatFail: each in its own way, named with its cause; the healthy one is enforced all
// the same, no bad state is touched, and no rule acts where it can't be read.
func TestHostsThatFail(t *testing.T) {
	hosts := append(sshd.Named("good", "corrupt", "link", "fifo", "huge"),
		sshd.HostOptions{Name: "password", Rights: sshd.NeedsPassword},
		sshd.HostOptions{Name: "nosudoer", Rights: sshd.NotInSudoers},
		sshd.HostOptions{Name: "nogenv", Rights: sshd.NoGenv},
		sshd.HostOptions{Name: "mismatch", Fault: gpus.FaultMismatch},
		sshd.HostOptions{Name: "lost", Fault: gpus.FaultLost})
	f := sshd.Start(t, sshd.Options{Hosts: hosts, Genv: genvtest.Program(t)})
	untouched := spoil(t, f)
	job := genvtest.StartOutside(t, f.Host("good"), "bob", testfleet.Use{Device: 0, MiB: 10})
	bystander := genvtest.StartOutside(t, f.Host("corrupt"), "bob", testfleet.Use{Device: 0, MiB: 10})

	r := genvtest.Run(t, "remote", "enforce", "-F", f.SSHConfig(), "-H", "good,corrupt,link,fifo,huge,password,nosudoer,nogenv,mismatch,lost",
		"--interval", "0", "--non-env-processes", "--format", "json")
	require.Equal(t, command.ExitSomeFailed, r.Code, r.Err)
	require.False(t, job.Running(), r.Out)
	require.True(t, bystander.Running())
	document := genvtest.Decode[enforcement.CycleDocument](t, r)
	classes := map[string]string{}
	for _, f := range document.Failed {
		classes[f.Host] = string(f.Class)
	}
	require.Equal(t, map[string]string{
		"password": "sudo", "nosudoer": "sudo", "mismatch": "command-failed", "lost": "command-failed",
	}, classes, r.Out)
	require.Equal(t, map[snapshot.Hostname]agent.Via{
		"good": "stream", "nogenv": "read-only", "corrupt": "stream", "link": "stream", "fifo": "stream", "huge": "stream",
	}, document.Via, "without state files that can be read, attachments are unknown, and processes are shown")
	require.Equal(t, 4, strings.Count(r.Out, "is unknown, so no rule acts on them"), r.Out)
	require.Contains(t, r.Err, "Driver/library version mismatch")
	for path, content := range untouched {
		require.Equal(t, content, genvtest.Read(t, path), path)
	}
	for _, host := range []string{"link", "fifo"} {
		info := proctest.Try(os.Lstat(filepath.Join(f.Host(host).State, "envs.json"))).OK(t)
		require.False(t, info.Mode().IsRegular(), "still what it was")
	}
}

// spoil gives hosts the states of hazards, and returns the contents that must still be there afterwards.
func spoil(t *testing.T, f *sshd.Fleet) map[string]string {
	for _, host := range []string{"corrupt", "link", "fifo", "huge"} {
		require.NoError(t, os.MkdirAll(f.Host(host).State, 0o777))
		require.NoError(t, os.Chmod(f.Host(host).State, 0o777))
	}
	path := func(host string) string { return filepath.Join(f.Host(host).State, "envs.json") }
	target := filepath.Join(t.TempDir(), "target")
	contents := map[string]string{
		path("corrupt"): `{"envs": [{"eid": "1"`,
		target:          `{"envs": []}`,
		path("huge"):    strings.Repeat(" ", 80<<20),
	}
	for name, content := range contents {
		require.NoError(t, os.WriteFile(name, []byte(content), 0o666))
	}
	require.NoError(t, os.Symlink(target, path("link")))
	require.NoError(t, unix.Mkfifo(path("fifo"), 0o666))
	return contents
}
