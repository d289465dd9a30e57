package readonly

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/hardware"
)

// answer is what a host prints.
type answer struct {
	text string
	err  error
}

func (a answer) Run(_ context.Context, _ remote.Host, c remote.Command) (remote.Output, error) {
	if c.Args[len(c.Args)-1] != published {
		return remote.Output{}, errors.New("another command")
	}
	return remote.Output{Stdout: []byte("Welcome\n\n" + dataMark + "\n" + a.text)}, a.err
}

func TestPublished(t *testing.T) {
	for text, want := range map[string]int{
		`{"schema":"genv.hardware/1","devices":[{"index":0,"uuid":"GPU-a"},{"index":1,"uuid":"GPU-b"}]}`: 2,
		"": 0, "{": 0, `{"schema":"genv.hardware/2","devices":[{"index":0}]}`: 0,
	} {
		require.Len(t, Host{Runner: answer{text: text}}.Published(t.Context(), remote.Host{}), want, text)
	}
	require.Nil(t, Host{Runner: answer{err: errors.New("no such file")}}.Published(t.Context(), remote.Host{}))
}

func TestShowsNone(t *testing.T) {
	failed := func(text string) error {
		return &remote.Error{Class: remote.CommandFailed, Err: errors.New(text)}
	}
	require.True(t, ShowsNone(failed("exit status 6")))
	require.True(t, ShowsNone(failed("exit status 4: Insufficient Permissions")))
	require.False(t, ShowsNone(failed("exit status 18")))
	require.False(t, ShowsNone(&remote.Error{Class: remote.Timeout, Err: errors.New("exit status 6")}))
}

func TestRenumbered(t *testing.T) {
	known := []hardware.Device{{Index: 0, UUID: "GPU-a"}, {Index: 1, UUID: "GPU-b", TotalMemory: snapshot.MiB(5)}, {Index: 2, UUID: "GPU-c"}, {Index: 3}}
	load := 50
	look := &snapshot.Snapshot{
		Devices: []snapshot.Device{{Index: 0, UUID: "GPU-b", Utilization: &load}, {Index: 1, UUID: "GPU-c"}, {Index: 2, UUID: "GPU-new"}},
		Processes: []snapshot.Process{
			{PID: 7, Usage: []snapshot.DeviceUsage{{Index: 0}, {Index: 1}}},
			{PID: 8, Usage: []snapshot.DeviceUsage{{Index: 2}}},
		},
	}
	got := Renumbered(look, known)
	require.Equal(t, []snapshot.DeviceIndex{1, 2}, got.Processes[0].Indices())
	require.Len(t, got.Processes, 1, "it is unknown which device root knows GPU-new by")
	require.Equal(t, &load, got.Devices[1].Utilization)
	states := []gpus.State{}
	for _, g := range gpus.Of(got) {
		states = append(states, g.State)
	}
	require.Equal(t, []gpus.State{gpus.Unknown, gpus.Busy, gpus.Busy, gpus.Unknown}, states)
	require.Equal(t, []string{"nvidia-smi hides 2 of 4 devices from this login: whether they are in use is unknown"}, got.Warnings)
	require.Equal(t, []snapshot.DeviceIndex{0, 1}, look.Processes[0].Indices(), "the look is as it was")
	require.Empty(t, Renumbered(&snapshot.Snapshot{Devices: []snapshot.Device{{UUID: "GPU-a"}}}, known[:1]).Warnings)
}
