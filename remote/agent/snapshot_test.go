package agent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// viewed is a document of a host as every login sees it.
func viewed(_ context.Context, part string) ([]byte, error) {
	if part == "envs" {
		return nil, errors.New("corrupt")
	}
	return []byte(part), nil
}

func TestAView(t *testing.T) {
	for request, want := range map[string]string{
		agent.RequestDevices: "devices", agent.RequestPing: "body", agent.RequestEnvironments: "corrupt",
		agent.RequestSnapshot: "without root", agent.RequestExecute: "without root", agent.RequestNotify: "without root", "": "without root",
	} {
		answer, err := agent.ViewHandler(viewed)(t.Context(), agent.Call{Frame: &frame.Frame{Name: request, Body: []byte("body")}, Wanted: t.Context()})
		if err != nil {
			answer = []byte(err.Error())
		}
		require.Contains(t, string(answer), want, request)
	}
}

// login answers `id -u` on a host.
type login struct {
	*scripted
	says string
}

func (l login) Run(ctx context.Context, h remote.Host, c remote.Command) (remote.Output, error) {
	if c.Args[0] == "sh" {
		return remote.Output{Stdout: []byte(l.says)}, nil
	}
	return l.scripted.Run(ctx, h, c)
}

// TestNothingIsJudgedWithoutRoot: the snapshot of a genv without root is not used.
func TestNothingIsJudgedWithoutRoot(t *testing.T) {
	view := agent.NewViewGreeting("v").Capabilities
	older := func(context.Context, remote.Host) (remote.Output, error) { return remote.Output{}, nil }
	for name, tt := range map[string]struct {
		host remote.Host
		n    login
		next string // empty if it is judged
	}{
		"a login without sudo":            {remote.Host{Name: "a", NoSudo: true}, login{&scripted{capabilities: view}, ""}, "remove `sudo: false`"},
		"a sudo to another user":          {remote.Host{Name: "a"}, login{&scripted{capabilities: view}, ""}, "runas_default"},
		"1.4.3, a login without sudo":     {remote.Host{Name: "a", NoSudo: true}, login{&scripted{command: older}, "genv-uid 1000\n"}, "remove `sudo: false`"},
		"1.4.3, one that doesn't say":     {remote.Host{Name: "a", NoSudo: true}, login{&scripted{command: older}, "0\n"}, "remove `sudo: false`"},
		"1.4.3, root behind a banner":     {remote.Host{Name: "a", NoSudo: true}, login{&scripted{command: older}, "Welcome\r\ngenv-uid 0\r\n"}, ""},
		"1.4.3 under sudo is never asked": {remote.Host{Name: "a"}, login{&scripted{command: older}, "genv-uid 1000\n"}, ""},
		"root":                            {remote.Host{Name: "a", NoSudo: true}, login{&scripted{}, "genv-uid 1000\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			pool := tt.n.pool(t)
			pool.Network = tt.n
			_, err := pool.Snapshot(t.Context(), tt.host)
			if tt.next == "" {
				require.NoError(t, err)
				require.True(t, pool.About(tt.host).Can(agent.RequestSnapshot))
				return
			}
			require.Equal(t, remote.Sudo, remote.ClassOf(err))
			require.Contains(t, remote.NextStepOf(err), tt.next)
			require.Error(t, proctest.Try(pool.Execute(t.Context(), tt.host, oneProcess)).Err)
			require.Empty(t, pool.About(tt.host).Via)
		})
	}
}

// TestHowOldMeasurementsMayBe: a pool that shows them says so to its hosts, and one that enforces leaves it to them.
func TestHowOldMeasurementsMayBe(t *testing.T) {
	h := genvhost.New(genvhost.Busy(1))
	f := genvhost.Start(t, 10*time.Second, h)
	snapshotOf(t, f.Streams, f.Names[0])
	require.Zero(t, h.DeviceAge())

	snapshotOf(t, measuring(t, f, 1500*time.Millisecond), f.Names[0])
	require.Equal(t, 1500*time.Millisecond, h.DeviceAge())
}

// measuring is a pool that shows what is measured.
func measuring(t *testing.T, f *genvhost.Fleet, age time.Duration) *agent.Pool {
	pool := &agent.Pool{Start: f.Streams.Start, Network: f.Client, Timeout: f.Streams.Timeout, Measure: true, DeviceAge: func() time.Duration { return age }, Log: zerolog.Nop()}
	t.Cleanup(pool.Close)
	return pool
}

func TestHostsRefuseNoAge(t *testing.T) {
	for body, want := range map[string]time.Duration{
		`{}`: 0, `{"age_ms": -1}`: 0, `{"age_ms": 10000}`: 10 * time.Second, `{"age_ms": 9223372036854775807}`: time.Hour,
	} {
		h := genvhost.New(genvhost.Busy(1))
		f := genvhost.Start(t, 10*time.Second, h)
		session := proctest.Try(f.Client.Start(t.Context(), f.Names[0], f.Names[0].Genv("usage", "serve", "--token", "t"))).OK(t)
		stream := proctest.Try(agent.OpenStream(t.Context(), session, session, "t")).OK(t)
		proctest.Try(stream.Call(t.Context(), agent.RequestSnapshot, []byte(body))).OK(t)
		require.Equal(t, want, h.DeviceAge(), body)
		session.Close()
	}
}

// TestMeasurementsOf143Hosts: their format has no room for utilization, temperature and
// power, so nvidia-smi is asked, and only by who wants to know them.
func TestMeasurementsOf143Hosts(t *testing.T) {
	t.Parallel()
	var smi atomic.Pointer[inprocess.Func]
	var asked atomic.Int32
	old := genvhost.New(genvhost.Busy(1)).Old()
	f := genvhost.Start(t, 4*time.Second, inprocess.Func(func(ctx context.Context, r *inprocess.Request) int {
		if strings.Contains(r.Line, "nvidia-smi") {
			asked.Add(1)
			return (*smi.Load())(ctx, r)
		}
		return old.Handle(ctx, r)
	}))
	s := snapshotOf(t, f.Streams, f.Names[0])
	require.Nil(t, s.Devices[0].Temperature)
	require.Zero(t, asked.Load())

	smi.Store(new(inprocess.Func(noGenv)))
	pool := measuring(t, f, time.Second)
	s = snapshotOf(t, pool, f.Names[0])
	require.Equal(t, agent.ViaCommands, pool.About(f.Names[0]).Via)
	require.Len(t, s.Processes, 1, "the snapshot is genv's")
	require.Equal(t, 3, *s.Devices[0].Utilization)
	require.Equal(t, 40, *s.Devices[0].Temperature)
	require.InDelta(t, 70.12, *s.Devices[0].Power, 0)
	require.Equal(t, "NVIDIA H100", s.Devices[0].Name)

	for name, broken := range map[string]inprocess.Func{
		"no driver": func(context.Context, *inprocess.Request) int { return 9 },
		"garbage": func(_ context.Context, r *inprocess.Request) int {
			fmt.Fprintln(r.Stdout, "<html>")
			return 0
		},
		"hung": func(ctx context.Context, _ *inprocess.Request) int { <-ctx.Done(); return 1 },
	} {
		smi.Store(&broken)
		s := proctest.Try(pool.Snapshot(t.Context(), f.Names[0])).OK(t, name)
		require.Len(t, s.Processes, 1, name)
		require.Nil(t, s.Devices[0].Temperature, name)
		require.Nil(t, s.Devices[0].Utilization, name)
		require.Contains(t, s.Warnings[len(s.Warnings)-1], "temperature and power of the GPUs are unknown", name)
	}
}

// TestAllowance: hosts hear of a new one with a snapshot, from a controller that may act there.
func TestAllowance(t *testing.T) {
	var heard []service.Allowance
	host := func() *agent.Pool {
		n := &scripted{
			capabilities: fencing,
			fence:        newFenced(t).file,
			allow: func(a *service.Allowance) {
				if a != nil {
					heard = append(heard, *a)
				}
			},
		}
		return n.pool(t)
	}
	look := func(p *agent.Pool) (told []service.Allowance) {
		heard = nil
		snapshotOf(t, p, remote.Host{Name: "a"})
		return heard
	}
	p := host()
	t.Cleanup(p.Close)
	require.Empty(t, look(p), "it says nothing")
	one := func(by string) map[snapshot.Hostname]*service.Allowance {
		return map[snapshot.Hostname]*service.Allowance{"a": {By: by, ForMS: 60000}, "b": {By: "another"}}
	}
	for range 3 { // also where nothing else is new
		p.Allow(one("x"))
		require.Equal(t, []service.Allowance{{By: "x", ForMS: 60000}}, look(p))
		require.Empty(t, look(p), "it has it")
	}
	p.Allow(one("y"))
	require.Equal(t, []service.Allowance{{By: "y", ForMS: 60000}}, look(p))
	p.Allow(map[snapshot.Hostname]*service.Allowance{"b": {By: "another"}})
	require.Empty(t, look(p), "it is about another host")
	p.Allow(nil)
	require.Empty(t, look(p))

	p.Lease(leader(1))
	p.Allow(one("x"))
	require.Len(t, look(p), 1, "it leads")
	p.Lease(nil)
	require.Empty(t, look(p), "it only looks since")
	p.Allow(one("x"))
	require.Empty(t, look(p), "a leader is noted, and it doesn't say that it is that")
}

// FuzzHost: whatever a host says, an answer that is used is one that a host
// which keeps to the protocol has written, whole, for this question.
func FuzzHost(f *testing.F) {
	hello := agent.Greet("t", greeting)
	good := agent.Frame(frame.KindAnswer, "", 1, []byte("yes"))
	f.Add(append(bytes.Clone(hello), good...))
	f.Add(append([]byte("motd\n"), append(hello, good...)...))
	f.Add(append(bytes.Clone(hello), agent.Frame(frame.KindRefusal, "", 1, []byte("no"))...))
	f.Add(append(bytes.Clone(hello), agent.Frame(frame.KindAnswer, "", 2, nil)...))
	f.Add(hello[:len(hello)-2])
	f.Add([]byte("\ngenv-serve t\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		in, out := agent.Scripted(said, hello)
		c, err := agent.OpenStream(t.Context(), in, out, "t")
		if err != nil {
			return
		}
		require.Contains(t, string(append([]byte("\n"), said...)), "\ngenv-serve t\n")
		if answer, err := c.Call(t.Context(), "q", nil); err == nil {
			require.True(t, bytes.Contains(said, agent.Frame(frame.KindAnswer, "", 1, answer)) || bytes.Contains(said, answer))
		}
	})
}

// FuzzController: whatever a controller says, the host's end comes to its own
// end, and answers just what it was asked, in order.
func FuzzController(f *testing.F) {
	one := agent.Frame(frame.KindRequest, "echo", 1, []byte("a"))
	two := agent.Frame(frame.KindRequest, "no", 2, nil)
	f.Add(append(bytes.Clone(one), two...))
	f.Add(append(bytes.Clone(one), one...))
	f.Add(one[:len(one)-1])
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, said []byte) {
		var out bytes.Buffer
		server := &agent.Responder{Token: "t", Greeting: greeting, Handler: echo{make(chan string, 64)}.Handle, Idle: time.Minute}
		err := server.Serve(t.Context(), bytes.NewReader(said), &out)
		if err != nil {
			require.ErrorIs(t, err, frame.ErrProtocol)
		}
		c := proctest.Try(agent.OpenStream(t.Context(), &out, io.Discard, "t")).OK(t, "it greets whatever comes")
		require.Equal(t, greeting, c.Greeting)
	})
}

// A leader that is elected again doesn't take hosts back from one that took them over since.
func TestAHostIsTakenOverOnce(t *testing.T) {
	file := newFenced(t).file
	pool := (&scripted{capabilities: fencing, fence: file}).pool(t)
	ask := func(epoch uint64) error {
		claim := leader(epoch)
		claim.TakeOver = true
		pool.Lease(claim)
		_, err := pool.Snapshot(t.Context(), remote.Host{Name: "a"})
		return err
	}
	require.NoError(t, ask(1))
	require.NoError(t, file.Admit(&fence.LeaseRequest{Who: fence.Folder("f"), Epoch: 1, Controller: "f", TakeOver: true}))
	pool.Lease(nil)
	require.Equal(t, remote.Replaced, remote.ClassOf(ask(2)))
}

// TestTheEndOfAWarning: a host with an older genv, which would show it as a message, isn't sent it.
func TestTheEndOfAWarning(t *testing.T) {
	for name, more := range map[string][]string{"older": nil, "present": {agent.CapabilityOver}} {
		notified := 0
		host := &scripted{
			capabilities: append([]string{agent.RequestSnapshot, agent.RequestNotify, agent.RequestPing}, more...), notify: func() { notified++ },
		}
		pool := host.pool(t)
		snapshotOf(t, pool, remote.Host{Name: "a"})
		proctest.Try(pool.Notify(t.Context(), remote.Host{Name: "a"}, []agent.Message{{UID: 1, IDs: []string{"x"}, Over: true}})).OK(t, name)
		pool.Close()
		require.Equal(t, len(more), notified, name)
	}
}

// What a host says about its guard is one printable line each, of bounded length.
func TestTextsOfAHost(t *testing.T) {
	long := strings.Repeat("é", 1<<20)
	state := agent.GuardAnswer{State: agent.GuardState{
		Mode: 9, Reason: "off\x1b]0;title\a\nUser alice was warned", Problems: []string{"a\rb", "\u202ec", long, "\xff"},
	}}.Bounded().State
	require.Equal(t, guard.Off, state.Mode)
	for _, said := range append(state.Problems, state.Reason) {
		require.LessOrEqual(t, len(said), 1024)
		require.NotContains(t, said, "\x1b")
		require.NotContains(t, said, "\n")
		require.NotContains(t, said, "\u202e")
	}
	require.Equal(t, "a b", state.Problems[0])
}
