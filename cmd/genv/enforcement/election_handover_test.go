package enforcement_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/remote/testfleet/servers"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// newSimulatedElectors are controllers of simulated hosts, which fail on demand.
func newSimulatedElectors(t *testing.T, hosts ...*inprocess.Server) *electors {
	servers.RequireEtcd(t)
	f := genvtest.StartFleet(t, hosts...)
	e := &electors{t: t, etcd: servers.StartEtcd(t, 1), ssh: f.SSHConfig(), dir: t.TempDir()}
	for _, h := range hosts {
		e.hosts = append(e.hosts, h.Name)
	}
	return e
}

// A leader that is told to end while a host doesn't take a warning: the memory that was written
// before says that the user was warned. Who takes over warns the user.
func TestAWarningThatWasNotSent(t *testing.T) {
	t.Parallel()
	state, alice := outsiders(1), snapshot.UID(1001)
	state.Processes[0].UID, state.Processes[0].Username = &alice, "alice"
	host := genvhost.New(state)
	var hangs atomic.Bool
	asked := make(chan struct{}, 100)
	hangs.Store(true)
	host.Behave(func(request string) genvhost.Behavior {
		if request != agent.RequestNotify {
			return genvhost.Behavior{}
		}
		asked <- struct{}{}
		return genvhost.Behavior{Freeze: hangs.Load()}
	})
	e := newSimulatedElectors(t, &inprocess.Server{Name: "a", Handler: host})
	policy := policyFile(t, "defaults:\n  non-env-processes: true\n  warn: {for: 1h}\n")
	first := e.begin("first", "--policy", policy)
	go first.drain()
	require.Eventually(t, func() bool { return len(asked) > 0 }, time.Minute, 10*time.Millisecond, "no user is warned")
	second := e.startAs(election.Standby, "second", "--policy", policy)
	hangs.Store(false)
	first.signal(syscall.SIGTERM)
	warned := second.next(func(c enforcement.CycleDocument) bool { return len(c.Notified) > 0 })
	require.Empty(t, warned.Notified[0].Error)
	first.exits(command.ExitOK)
}

// Only a leader that ends sends what waits.
func TestALeaderThatEndsSendsItsMail(t *testing.T) {
	t.Parallel()
	state, alice := outsiders(1), snapshot.UID(1001)
	state.Processes[0].UID, state.Processes[0].Username = &alice, "alice"
	host := genvhost.New(&snapshot.Snapshot{BootID: "a"})
	e := newSimulatedElectors(t, &inprocess.Server{Name: "a", Handler: host})
	sendmail, mails, policy, quiet := filepath.Join(e.dir, "sendmail"), filepath.Join(e.dir, "mails"), filepath.Join(e.dir, "policy.yaml"), filepath.Join(e.dir, "quiet.yaml")
	require.NoError(t, proctest.WriteProgram(sendmail, []byte("#!/bin/sh\ncat >> "+mails+"\n")))
	const rules = "defaults:\n  non-env-processes: true\n  warn: {for: 1h}\n"
	require.NoError(t, os.WriteFile(quiet, []byte(rules), 0o600))
	require.NoError(t, os.WriteFile(policy, []byte(rules+"mail:\n  from: genv@example.org\n  template: '{{.User}}@example.org'\n  sendmail: "+sendmail+"\n"), 0o600))
	first := e.startAs(election.Leading, "first", "--policy", policy)
	second := e.startAs(election.Standby, "second", "--policy", quiet)
	go second.drain()
	host.Change(func(s *snapshot.Snapshot) { *s = *state })
	first.next(func(c enforcement.CycleDocument) bool { return len(c.Notified) > 0 })
	first.signal(syscall.SIGTERM).exits(command.ExitOK)
	again := e.startAs(election.Standby, "first", "--policy", policy)
	again.signal(syscall.SIGTERM).exits(command.ExitOK)
	require.Equal(t, 1, strings.Count(genvtest.Read(t, mails), "To: <alice@example.org>"))
}

// A leader and a host fail together. The standby just waits for that host: it takes over and acts on the other hosts.
func TestATakeOverWaitsForNoHost(t *testing.T) {
	t.Parallel()
	a, b := genvhost.New(&snapshot.Snapshot{BootID: "a"}), genvhost.New(&snapshot.Snapshot{BootID: "b"})
	var hangs atomic.Bool
	hung := make(chan struct{}, 1000)
	b.Behave(func(string) genvhost.Behavior {
		if hangs.Load() {
			hung <- struct{}{}
		}
		return genvhost.Behavior{Freeze: hangs.Load()}
	})
	e := newSimulatedElectors(t, &inprocess.Server{Name: "a", Handler: a}, &inprocess.Server{Name: "b", Handler: b})
	flags := []string{"--non-env-processes", "--command-timeout", "10m"}
	first := e.startAs(election.Leading, "first", flags...)
	second := e.startAs(election.Standby, "second", flags...)
	go second.drain()
	hangs.Store(true)
	require.Eventually(t, func() bool { return len(hung) >= 2 }, time.Minute, time.Millisecond, "both wait for the host")
	first.signal(os.Kill)
	a.Change(func(s *snapshot.Snapshot) { *s = *outsiders(1) })
	require.Eventually(t, func() bool { return len(a.Actions()) == 1 }, time.Minute, 10*time.Millisecond, second.said())
}

// What comes of an order after its leader has lost the lead is in that controller's record, and hooks get it.
func TestAnOutcomeAfterTheTerm(t *testing.T) {
	t.Parallel()
	host, ordered, answers := genvhost.New(outsiders(1)), make(chan struct{}, 1), make(chan struct{})
	host.Behave(func(request string) genvhost.Behavior {
		if request == agent.RequestExecute {
			ordered <- struct{}{}
			<-answers
		}
		return genvhost.Behavior{}
	})
	e := newSimulatedElectors(t, &inprocess.Server{Name: "a", Handler: host})
	acted := filepath.Join(e.dir, "acted")
	d := e.begin("first", "--policy", policyFile(t, "defaults: {non-env-processes: true}\nhooks: [{command: [/usr/bin/tee, "+acted+"], events: [act]}]\n"))
	<-ordered
	d.cut.Interrupt()
	d.is(election.Expired)
	go d.drain()
	close(answers)
	require.Eventually(t, func() bool {
		_, err := os.Stat(acted)
		return err == nil && strings.Contains(genvtest.Read(t, filepath.Join(e.dir, "first.jsonl")), `"status":"terminated"`)
	}, time.Minute, 50*time.Millisecond)
}

// A leader to which etcd is lost, and which is elected again, goes on with what it knows, also
// with what operators asked for meanwhile. What they ask for while no controller runs counts
// from the next start on, although etcd doesn't know of it.
func TestALeaderThatIsElectedAgain(t *testing.T) {
	t.Parallel()
	e := newSimulatedElectors(t, &inprocess.Server{Name: "a", Handler: genvhost.New(outsiders(1))})
	policy, socket, state := filepath.Join(e.dir, "policy.yaml"), filepath.Join(e.dir, "socket"), filepath.Join(e.dir, "only")
	require.NoError(t, os.WriteFile(policy, []byte("defaults:\n  non-env-processes: true\n  warn: {for: 1h}\n"), 0o600))
	exempt := func(device string, args ...string) string {
		out, _ := exec.Command(genvtest.Program(t), append([]string{"remote", "exempt", "--host", "a", "--device", device, "--for", "1h", "--reason", "a test"}, args...)...).CombinedOutput()
		return string(out)
	}
	d := e.start("only", "--policy", policy, "--socket", socket)
	before := d.next(func(c enforcement.CycleDocument) bool { return !c.Standby && len(c.Findings) == 1 })

	lost := false // it was asked while it led without etcd, which a busy machine may take too long for
	for try := 0; !lost && try < 10; try++ {
		e.etcd.Kill(0)
		said := exempt("6", "--socket", socket)
		lost = strings.Contains(said, "kept here, but not in etcd, so it is lost if another controller takes over")
		d.is(election.Expired)
		e.etcd.Restart(0)
		d.is(election.Leading)
	}
	require.True(t, lost)
	after := d.next(func(c enforcement.CycleDocument) bool { return !c.Standby && len(c.Findings) == 1 })
	require.Equal(t, before.Findings[0].ID, after.Findings[0].ID)
	require.WithinDuration(t, before.Findings[0].Since, after.Findings[0].Since, time.Millisecond)
	require.Len(t, after.Exemptions, 1)

	d.signal(syscall.SIGTERM).exits(command.ExitOK)
	require.Contains(t, exempt("7", "--socket", "off", "--state-dir", state), "exempt")
	again := e.start("only", "--policy", policy, "--socket", socket).is(election.Leading)
	require.Len(t, again.Exemptions, 2)
	require.WithinDuration(t, before.Findings[0].Since, again.Findings[0].Since, time.Millisecond)
}

// Caps of GPU hours go on with what the leader before counted, which all controllers keep in PostgreSQL. One with
// --leader and without that refuses such a cap.
func TestATakeOverContinuesHours(t *testing.T) {
	t.Parallel()
	servers.RequirePostgres(t)
	state, alice := outsiders(1), snapshot.UID(1001)
	state.Processes[0].UID, state.Processes[0].Username = &alice, "alice"
	e := newSimulatedElectors(t, &inprocess.Server{Name: "a", Handler: genvhost.New(state)})
	policy := policyFile(t, "defaults: {non-env-processes: count}\ncaps:\n  - {name: month, gpu-hours: 100, every: month}\n")
	refused := e.begin("first", "--policy", policy)
	refused.exits(command.ExitFailed)
	refused.says("policy.yaml:3:6: gpu-hours: with --leader all controllers count them in one PostgreSQL database")

	flags := []string{"--policy", policy, "--usage-db", servers.StartPostgres(t, "").URL()}
	first := e.startAs(election.Leading, "first", flags...)
	second := e.startAs(election.Standby, "second", flags...)
	before := 0.0
	for _, leader := range []*elector{first, second} {
		for range 4 {
			leader.is(election.Leading)
		}
		leader.signal(syscall.SIGTERM).exits(command.ExitOK)
		s := proctest.Try(store.OpenToRead(t.Context(), flags[3], store.Options{In: time.UTC})).OK(t)
		hours, _, err := s.Hours(t.Context())
		require.NoError(t, errors.Join(err, s.Close()))
		counted := hours["month"].Seconds["alice"]
		require.Greater(t, counted, before, leader.said())
		before = counted
	}
}
