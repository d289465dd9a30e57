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
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/remote/testfleet/servers"
	"github.com/seed-3119e985/genv/snapshot"
)

// With an etcd that asks for certificates and passwords: the password is in no argument, no log and no state.
func TestAnElectionWithTLSAndUsers(t *testing.T) {
	t.Parallel()
	servers.RequireEtcd(t)
	const password = "pa55: word"
	etcd, files := servers.StartEtcdTLS(t, 1)
	etcd.AddUser("genv", password, "/genv/")
	host := genvhost.New(outsiders(1))
	f, dir := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: host}), t.TempDir()
	login := filepath.Join(dir, "login")
	require.NoError(t, os.WriteFile(login, []byte("genv:"+password+"\n"), 0o600))
	begin := func(name, login string) *elector {
		return &elector{background: startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "a", "--interval", "1", "--non-env-processes",
			"--leader", strings.ReplaceAll(etcd.Endpoints()[0], "https:", "etcds:")+"/genv/lab", "--leader-login", login,
			"--leader-ca", files.CA, "--leader-cert", files.Cert, "--leader-key", files.Key,
			"--state-dir", filepath.Join(dir, name), "--audit-log", filepath.Join(dir, name+".jsonl"))}
	}
	first := begin("first", login)
	first.is(election.Leading)
	second := begin("second", login)
	second.is(election.Standby)
	require.Eventually(t, func() bool { return len(host.Actions()) == 1 }, time.Minute, 10*time.Millisecond)
	for _, d := range []*elector{first, second} {
		require.NotContains(t, genvtest.Read(t, fmt.Sprintf("/proc/%d/cmdline", d.cmd.Process.Pid)), password)
		require.NotContains(t, d.said(), password)
	}
	first.signal(os.Kill)
	host.Change(func(s *snapshot.Snapshot) { *s = *outsiders(1) })
	second.is(election.Leading)
	require.Eventually(t, func() bool { return len(host.Actions()) == 2 }, time.Minute, 10*time.Millisecond)
	second.signal(syscall.SIGTERM).exits(command.ExitOK)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "wrong-login"), []byte("genv:"+password+"x\n"), 0o600))
	wrong := begin("wrong", filepath.Join(dir, "wrong-login"))
	wrong.says("authentication failed")
	wrong.signal(syscall.SIGTERM).end()
	require.NotContains(t, wrong.said(), password)
	require.NoError(t, os.Remove(login))
	require.NoError(t, os.Remove(filepath.Join(dir, "wrong-login")))
	noFileContains(t, dir, password)
}

func noFileContains(t *testing.T, dir, text string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		require.NotContains(t, string(content), text, path)
		return err
	}))
}

// Over real sshd and sudo: all members of an etcd are lost, and another one is set up. Hosts refuse its first leader
// until it takes over, and then no other one of that election. A host that SIGHUP adds is taken over, too.
func TestAnEtcdThatWasSetUpAgain(t *testing.T) {
	t.Parallel()
	e := newElectors(t, "gpu-01", "gpu-02")
	list := filepath.Join(e.dir, "hosts")
	begin := func(name string, more ...string) *elector {
		return &elector{background: startDaemon(t, nil, append([]string{
			"-F", e.ssh, "--hostfile", list, "--interval", "1", "--non-env-processes",
			"--state-dir", filepath.Join(e.dir, name), "--audit-log", filepath.Join(e.dir, name+".jsonl"),
		}, more...)...)}
	}
	listed := func(hosts ...string) {
		require.NoError(t, os.WriteFile(list, []byte(strings.Join(hosts, "\n")), 0o600))
	}
	leader := func() string { return "etcd://" + e.etcd.Addresses() + "/genv/lab" }

	listed("gpu-02")
	other := begin("other") // a controller without etcd
	other.next(func(c enforcement.CycleDocument) bool { return c.Answered == 1 })
	listed("gpu-01")
	first := begin("first", "--leader", leader())
	first.is(election.Leading)
	e.ended(e.violate("gpu-01"))
	first.signal(os.Kill).end()

	e.etcd = servers.StartEtcd(t, 1)
	refused := begin("first", "--leader", leader())
	refused.exits(command.ExitReplaced)
	require.Contains(t, refused.said(), "start this one once with --take-over")
	again := begin("first", "--leader", leader(), "--take-over")
	again.is(election.Leading)
	e.ended(e.violate("gpu-01"))

	listed("gpu-01", "gpu-02")
	again.signal(syscall.SIGHUP)
	other.exits(command.ExitReplaced)
	again.next(func(c enforcement.CycleDocument) bool { return c.Answered == 2 && len(c.Failed) == 0 })
	e.ended(e.violate("gpu-02"))
	standby := begin("standby", "--leader", leader())
	standby.is(election.Standby)
	again.signal(os.Kill)
	standby.is(election.Leading)
	e.ended(e.violate("gpu-01"))
	e.ended(e.violate("gpu-02"))

	standby.signal(syscall.SIGTERM) // hosts wait for the next leader of the election
	standby.exits(command.ExitOK)
	begin("other").exits(command.ExitReplaced)

	last := begin("first", "--leader", leader(), "--take-over")
	last.is(election.Leading)
	e.ended(e.violate("gpu-01"))
	begin("other", "--take-over")
	last.exits(command.ExitReplaced)
	require.NotContains(t, last.said(), "etcd was recreated", "it was replaced by another source")
	e.ended(e.violate("gpu-01"))
}

// Over real sshd and sudo: etcd loses its data, and is started with the same flags. It is the same cluster
// to hosts, which know a later epoch of it. The leader says so, once, and what helps does help.
func TestAnEtcdThatForgot(t *testing.T) {
	t.Parallel()
	e := newElectors(t, "gpu-01", "gpu-02")
	client := etcd.New(etcd.Config{Endpoints: e.etcd.Endpoints()})
	t.Cleanup(client.Close)
	for range 200 { // more revisions than there will be later
		require.NoError(t, client.Put(t.Context(), "/other", []byte("x"), 0))
	}
	const warning = "etcd was recreated or restored with the same cluster token"
	first := e.startAs(election.Leading, "first", "--non-env-processes")
	e.ended(e.violate("gpu-01"))
	require.NotContains(t, first.said(), warning)

	e.etcd.Forget()
	first.says(warning)
	unharmed := e.violate("gpu-01")
	for range 3 {
		first.next(func(c enforcement.CycleDocument) bool { return !c.Standby && len(c.Failed) == 2 })
	}
	require.Equal(t, 1, strings.Count(first.said(), warning))
	require.True(t, unharmed.Running(), "the hosts refuse it")
	first.signal(syscall.SIGTERM).end()

	again := e.begin("first", "--non-env-processes", "--take-over")
	again.says(warning)
	again.signal(syscall.SIGTERM).end()
	require.True(t, unharmed.Running())
	other := e.begin("first", "--non-env-processes", "--take-over", "--leader", "etcd://"+e.etcd.Addresses()+"/genv/lab-2")
	other.is(election.Leading)
	e.ended(unharmed)
}

// A controller that asks etcd over a network without TLS says so, once.
func TestAnElectionInClearText(t *testing.T) {
	t.Parallel()
	e := newSimulatedElectors(t, &inprocess.Server{Name: "a", Handler: genvhost.New(outsiders(1))})
	d := e.begin("loopback")
	d.is(election.Leading)
	require.NotContains(t, d.said(), "not encrypted")
	port := e.etcd.Addresses()[strings.LastIndex(e.etcd.Addresses(), ":"):]
	d = e.begin("any", "--leader", "etcd://0.0.0.0"+port+"/genv/lab")
	d.next(func(c enforcement.CycleDocument) bool { return c.Standby })
	d.next(func(c enforcement.CycleDocument) bool { return c.Standby })
	require.Equal(t, 1, strings.Count(d.said(), "the connection to etcd is not encrypted"))
}
