package agent_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
)

// TestHowOldMeasurementsMayBe: a pool that shows them says so to its hosts, and one that
// enforces leaves it to them.
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
		require.Contains(t, s.Warnings[len(s.Warnings)-1], "temperature and power of the devices are unknown", name)
	}
}
