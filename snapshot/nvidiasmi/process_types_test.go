package nvidiasmi_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// screened is an answer with GPU-0, which has a screen, and GPU-1, which has none, and these processes on both.
func screened(pids ...snapshot.PID) nvidiasmi.Details {
	d := nvidiasmi.Details{GPUs: []nvidiasmi.GPUDetails{{UUID: "GPU-0", DisplayActive: true}, {UUID: "GPU-1"}}}
	for _, pid := range pids {
		for i := range d.GPUs {
			d.GPUs[i].Processes = append(d.GPUs[i].Processes, nvidiasmi.ProcessDetails{PID: pid, Type: "C+G"})
		}
	}
	return d
}

// typesLook is a look at processes.
type typesLook struct {
	after time.Duration // the one before
	plain bool          // types aren't wanted
	uses  []snapshot.PID
	on    snapshot.DeviceIndex
	says  nvidiasmi.Details
	since nvidiasmi.Details // came since the last question
	err   error
	asked bool
	want  []snapshot.ProcessType
}

// TestTypes: one answer is for all processes, at most one in 30 s, and what it says of one is kept.
// GPU-0 has a screen, GPU-1 has none.
func TestTypes(t *testing.T) {
	lookForTypes(t, map[string][]typesLook{
		"not wanted":       {{plain: true, uses: []snapshot.PID{5}, want: []snapshot.ProcessType{""}}},
		"nothing is there": {{}},
		"one answer for all": {
			{uses: []snapshot.PID{5, 6}, says: screened(5), asked: true, want: []snapshot.ProcessType{"C+G", "C"}},
			{after: time.Hour, uses: []snapshot.PID{5, 6}, want: []snapshot.ProcessType{"C+G", "C"}},
			{after: time.Hour, plain: true, uses: []snapshot.PID{5, 6}, want: []snapshot.ProcessType{"C+G", "C"}},
		},
		"a process starts": {
			{uses: []snapshot.PID{5}, says: screened(5), asked: true, want: []snapshot.ProcessType{"C+G"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 6}, want: []snapshot.ProcessType{"C+G", "?"}},
			{after: 20 * time.Second, uses: []snapshot.PID{5, 6}, says: screened(), asked: true, want: []snapshot.ProcessType{"C+G", "C"}},
		},
		"a process starts where there is no screen": {
			{uses: []snapshot.PID{5}, on: 1, says: screened(5), asked: true, want: []snapshot.ProcessType{"C+G"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 6}, on: 1, want: []snapshot.ProcessType{"C+G", "C"}},
		},
		"no answer": {
			{uses: []snapshot.PID{5}, err: &nvidiasmi.ExitError{Err: nvidiasmi.ErrFailed, ExitCode: 1}, asked: true, want: []snapshot.ProcessType{"C"}},
			{after: 10 * time.Second, uses: []snapshot.PID{6}, want: []snapshot.ProcessType{"C"}},
		},
		"too much": {{uses: []snapshot.PID{5}, err: nvidiasmi.ErrGarbled, asked: true, want: []snapshot.ProcessType{"C"}}},
		"no answer in time": {
			{uses: []snapshot.PID{5}, err: nvidiasmi.ErrTimeout, asked: true, want: []snapshot.ProcessType{"?"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5}, want: []snapshot.ProcessType{"?"}},
			{after: 20 * time.Second, uses: []snapshot.PID{5}, says: screened(5), asked: true, want: []snapshot.ProcessType{"C+G"}},
		},
		"an answer that comes after the look": {
			{uses: []snapshot.PID{5, 7}, err: nvidiasmi.ErrTimeout, asked: true, want: []snapshot.ProcessType{"?", "?"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 7, 6}, since: screened(5), want: []snapshot.ProcessType{"C+G", "C", "?"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 7, 6}, want: []snapshot.ProcessType{"C+G", "C", "?"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 7, 6}, says: screened(6), asked: true, want: []snapshot.ProcessType{"C+G", "C", "C+G"}},
		},
		"an answer to an earlier question": {
			{uses: []snapshot.PID{5}, says: nvidiasmi.Details{GPUs: screened(5).GPUs, Time: nvidiasmi.Time{Late: true}}, asked: true, want: []snapshot.ProcessType{"?"}},
			{uses: []snapshot.PID{6}, on: 1, want: []snapshot.ProcessType{"C"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5}, since: screened(5), want: []snapshot.ProcessType{"C+G"}},
		},
		"a name of a process that says that a screen is active": {
			{uses: []snapshot.PID{5}, on: 1, says: nvidiasmi.Details{GPUs: append(screened(5).GPUs, nvidiasmi.GPUDetails{UUID: "GPU-1", DisplayActive: true})}, asked: true, want: []snapshot.ProcessType{"C+G"}},
		},
	})
}

func TestTypesWhileNvidiaSMIHangs(t *testing.T) {
	lookForTypes(t, map[string][]typesLook{
		"it hangs where there is no screen": {
			{uses: []snapshot.PID{5}, on: 1, says: screened(), asked: true, want: []snapshot.ProcessType{"C"}},
			{after: 30 * time.Second, uses: []snapshot.PID{5, 6}, on: 1, err: nvidiasmi.ErrTimeout, asked: true, want: []snapshot.ProcessType{"C", "?"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 6, 7}, on: 1, want: []snapshot.ProcessType{"C", "C", "C"}},
			{after: 20 * time.Second, uses: []snapshot.PID{5, 6, 7}, on: 1, err: nvidiasmi.ErrHung, asked: true, want: []snapshot.ProcessType{"C", "C", "C"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 6}, on: 1, since: screened(6), want: []snapshot.ProcessType{"C", "C+G"}},
		},
		"it hangs on a desktop": {
			{uses: []snapshot.PID{5}, says: screened(5), asked: true, want: []snapshot.ProcessType{"C+G"}},
			{after: 30 * time.Second, uses: []snapshot.PID{5, 6}, err: nvidiasmi.ErrTimeout, asked: true, want: []snapshot.ProcessType{"C+G", "?"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 6}, want: []snapshot.ProcessType{"C+G", "?"}},
			{after: 9 * time.Minute, uses: []snapshot.PID{5, 6}, err: nvidiasmi.ErrHung, asked: true, want: []snapshot.ProcessType{"C+G", "?"}},
			{after: time.Minute, uses: []snapshot.PID{5, 6, 7}, err: nvidiasmi.ErrHung, asked: true, want: []snapshot.ProcessType{"C+G", "C", "C"}},
			{after: time.Minute, uses: []snapshot.PID{5, 6, 7}, says: screened(5, 7), asked: true, want: []snapshot.ProcessType{"C+G", "C", "C+G"}},
		},
		"it has never answered": {
			{uses: []snapshot.PID{5}, on: 1, err: nvidiasmi.ErrHung, asked: true, want: []snapshot.ProcessType{"?"}},
			{after: time.Minute, uses: []snapshot.PID{5}, on: 1, err: nvidiasmi.ErrHung, asked: true, want: []snapshot.ProcessType{"?"}},
			{after: time.Hour, uses: []snapshot.PID{5}, on: 1, err: nvidiasmi.ErrHung, asked: true, want: []snapshot.ProcessType{"C"}},
		},
		"it hangs again much later": {
			{uses: []snapshot.PID{5}, err: nvidiasmi.ErrTimeout, asked: true, want: []snapshot.ProcessType{"?"}},
			{after: time.Hour, uses: []snapshot.PID{6}, err: nvidiasmi.ErrTimeout, asked: true, want: []snapshot.ProcessType{"?"}},
			{after: time.Minute, uses: []snapshot.PID{6}, err: nvidiasmi.ErrHung, asked: true, want: []snapshot.ProcessType{"?"}},
		},
	})
}

func lookForTypes(t *testing.T, rows map[string][]typesLook) {
	t.Helper()
	for name, looks := range rows {
		t.Run(name, func(t *testing.T) {
			var types nvidiasmi.Types
			now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
			for _, l := range looks {
				s := &snapshot.Snapshot{Devices: []snapshot.Device{{Index: 0}, {Index: 1}}}
				for _, pid := range l.uses {
					s.Processes = append(s.Processes, snapshot.Process{PID: pid, Start: 1, Usage: []snapshot.DeviceUsage{{Index: l.on}}})
				}
				ctx := snapshot.WithTypes(t.Context())
				if l.plain {
					ctx = t.Context()
				}
				now = now.Add(l.after)
				asked := false
				types.Set(ctx, s, map[snapshot.DeviceIndex]snapshot.GPUUUID{0: "GPU-0", 1: "GPU-1"}, now, func(_ context.Context, since time.Time) (nvidiasmi.Details, error) {
					if !since.IsZero() && l.since.GPUs == nil {
						return nvidiasmi.Details{}, nvidiasmi.ErrTimeout
					} else if !since.IsZero() {
						return l.since, nil
					}
					asked = true
					return l.says, l.err
				})
				require.Equal(t, l.asked, asked)
				for i, want := range l.want {
					require.Equal(t, want, s.Processes[i].Usage[0].Type)
				}
				require.False(t, s.Devices[1].Display)
				if said := l.says.GPUs != nil || l.since.GPUs != nil; said {
					require.True(t, s.Devices[0].Display)
				}
			}
		})
	}
}

// TestTypesOfProcessesWithoutAStartTime, as genv 1.4.3 reports them: what is said of a PID isn't kept for
// longer than the answer.
func TestTypesOfProcessesWithoutAStartTime(t *testing.T) {
	var types nvidiasmi.Types
	now, calls := time.Now(), 0
	for _, want := range []snapshot.ProcessType{"C+G", "C+G", "C"} {
		s := &snapshot.Snapshot{Processes: []snapshot.Process{{PID: 5, Usage: []snapshot.DeviceUsage{{}}}}}
		types.Set(snapshot.WithTypes(t.Context()), s, map[snapshot.DeviceIndex]snapshot.GPUUUID{0: "GPU-0"}, now, func(context.Context, time.Time) (nvidiasmi.Details, error) {
			if calls++; calls > 1 {
				return nvidiasmi.Details{}, errors.New("nvidia-smi is broken")
			}
			return nvidiasmi.Details{GPUs: []nvidiasmi.GPUDetails{{UUID: "GPU-0", DisplayActive: true, Processes: []nvidiasmi.ProcessDetails{{PID: 5, Type: "C+G"}}}}}, nil
		})
		require.Equal(t, want, s.Processes[0].Usage[0].Type)
		now = now.Add(20 * time.Second)
	}
	require.Equal(t, 2, calls)
}

// TestDrawn: what only draws is known from the answer about types alone, and no desktop is in it.
func TestDrawn(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	says := screened()
	says.Time.Ended = now
	for i, list := range [][]string{{"5 G", "6 G", "7 C", "9 C+G", "10 G"}, {"5 G", "6 C", "8 G", "9 G", "10 C+G", "11 C+G"}} {
		for _, line := range list {
			var p nvidiasmi.ProcessDetails
			_, err := fmt.Sscan(line, &p.PID, &p.Type)
			require.NoError(t, err)
			p.Memory = snapshot.MiB(24)
			says.GPUs[i].Processes = append(says.GPUs[i].Processes, p)
		}
	}
	vulkan := nvidiasmi.App{GPU: "GPU-1", PID: 8, Memory: snapshot.MiB(24)}
	for name, row := range map[string]struct {
		types  bool // they were asked for
		err    error
		listed []nvidiasmi.App
		after  time.Duration
		want   []nvidiasmi.App
	}{
		"on a GPU without a screen":     {types: true, want: []nvidiasmi.App{vulkan}},
		"nvidia-smi wasn't asked":       {},
		"it failed":                     {types: true, err: nvidiasmi.ErrGarbled},
		"it timed out":                  {types: true, err: nvidiasmi.ErrTimeout},
		"a minute later":                {types: true, after: 61 * time.Second},
		"it is a compute process, too":  {types: true, listed: []nvidiasmi.App{{GPU: "GPU-0", PID: 8}}},
		"another is a compute process":  {types: true, listed: []nvidiasmi.App{{GPU: "GPU-1", PID: 7}}, want: []nvidiasmi.App{vulkan}},
		"asked a while ago, still held": {types: true, after: 50 * time.Second, want: []nvidiasmi.App{vulkan}},
	} {
		t.Run(name, func(t *testing.T) {
			var types nvidiasmi.Types
			ctx := t.Context()
			if row.types {
				ctx = snapshot.WithTypes(ctx)
			}
			s := &snapshot.Snapshot{Processes: []snapshot.Process{{PID: 99, Start: 1, Usage: []snapshot.DeviceUsage{{Index: 1}}}}}
			types.Set(ctx, s, map[snapshot.DeviceIndex]snapshot.GPUUUID{1: "GPU-1"}, now, func(context.Context, time.Time) (nvidiasmi.Details, error) { return says, row.err })
			drawn, _ := types.Drawn(row.listed, now.Add(row.after))
			require.Equal(t, row.want, drawn)
			asked := false
			types.Renew(t.Context(), row.listed, now.Add(row.after), func(context.Context, time.Time) (nvidiasmi.Details, error) {
				asked = true
				return nvidiasmi.Details{}, nvidiasmi.ErrHung
			})
			require.Equal(t, row.want != nil, asked, "only before one may be ended")
			drawn, _ = types.Drawn(row.listed, now.Add(row.after))
			require.Empty(t, drawn, "without a new answer none is")
		})
	}
}
