package agent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
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
			pool := tt.n.pool()
			pool.Network = tt.n
			defer pool.Close()
			_, err := pool.Snapshot(t.Context(), tt.host)
			if tt.next == "" {
				require.NoError(t, err)
				require.True(t, pool.About(tt.host).Can.Snapshot)
				return
			}
			require.Equal(t, remote.Sudo, remote.ClassOf(err))
			require.Contains(t, remote.NextStepOf(err), tt.next)
			_, err = pool.Execute(t.Context(), tt.host, oneProcess)
			require.Error(t, err)
			require.Empty(t, pool.About(tt.host).Via)
		})
	}
}

// TestHowOldMeasurementsMayBe: a pool that shows them says so to its hosts, and one that enforces leaves it to them.
func TestHowOldMeasurementsMayBe(t *testing.T) {
	h := genvhost.New(busy(1))
	f := startFleet(t, 10*time.Second, h)
	_, err := f.streams.Snapshot(t.Context(), f.hosts[0])
	require.NoError(t, err)
	require.Zero(t, h.DeviceAge())

	_, err = f.measuring(t, 1500*time.Millisecond).Snapshot(t.Context(), f.hosts[0])
	require.NoError(t, err)
	require.Equal(t, 1500*time.Millisecond, h.DeviceAge())
}

// measuring is a pool that shows what is measured.
func (f *fleet) measuring(t *testing.T, age time.Duration) *agent.Pool {
	pool := &agent.Pool{Start: f.streams.Start, Network: f.client, Timeout: f.streams.Timeout, Measure: true, DeviceAge: func() time.Duration { return age }, Log: zerolog.Nop()}
	t.Cleanup(pool.Close)
	return pool
}

func TestHostsRefuseNoAge(t *testing.T) {
	for body, want := range map[string]time.Duration{
		`{}`: 0, `{"age_ms": -1}`: 0, `{"age_ms": 10000}`: 10 * time.Second, `{"age_ms": 9223372036854775807}`: time.Hour,
	} {
		h := genvhost.New(busy(1))
		f := startFleet(t, 10*time.Second, h)
		session, err := f.client.Start(t.Context(), f.hosts[0], f.hosts[0].Genv("usage", "serve", "--token", "t"))
		require.NoError(t, err)
		stream, err := agent.OpenStream(t.Context(), session, session, "t")
		require.NoError(t, err)
		_, err = stream.Call(t.Context(), agent.RequestSnapshot, []byte(body))
		require.NoError(t, err)
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
	old := genvhost.New(busy(1)).Old()
	f := startFleet(t, 4*time.Second, inprocess.Func(func(ctx context.Context, r *inprocess.Request) int {
		if strings.Contains(r.Line, "nvidia-smi") {
			asked.Add(1)
			return (*smi.Load())(ctx, r)
		}
		return old.Handle(ctx, r)
	}))
	s, err := f.streams.Snapshot(t.Context(), f.hosts[0])
	require.NoError(t, err)
	require.Nil(t, s.Devices[0].Temperature)
	require.Zero(t, asked.Load())

	works := inprocess.Func(noGenv)
	smi.Store(&works)
	pool := f.measuring(t, time.Second)
	s, err = pool.Snapshot(t.Context(), f.hosts[0])
	require.NoError(t, err)
	require.Equal(t, agent.ViaCommands, pool.About(f.hosts[0]).Via)
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
		s, err = pool.Snapshot(t.Context(), f.hosts[0])
		require.NoError(t, err, name)
		require.Len(t, s.Processes, 1, name)
		require.Nil(t, s.Devices[0].Temperature, name)
		require.Nil(t, s.Devices[0].Utilization, name)
		require.Contains(t, s.Warnings[len(s.Warnings)-1], "temperature and power of the GPUs are unknown", name)
	}
}
