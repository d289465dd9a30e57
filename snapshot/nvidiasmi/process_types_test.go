package nvidiasmi_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// screens are GPU-0, which has a screen, and GPU-1, which has none.
var screens = map[snapshot.GPUUUID]bool{"GPU-0": true, "GPU-1": false}

// drawn is an answer according to which these processes draw.
func drawn(pids ...snapshot.PID) nvidiasmi.Details {
	d := nvidiasmi.Details{Displays: screens, Drawing: map[snapshot.PID]snapshot.ProcessType{}}
	for _, pid := range pids {
		d.Drawing[pid] = "C+G"
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
			{uses: []snapshot.PID{5, 6}, says: drawn(5), asked: true, want: []snapshot.ProcessType{"C+G", "C"}},
			{after: time.Hour, uses: []snapshot.PID{5, 6}, want: []snapshot.ProcessType{"C+G", "C"}},
			{after: time.Hour, plain: true, uses: []snapshot.PID{5, 6}, want: []snapshot.ProcessType{"C+G", "C"}},
		},
		"a process starts": {
			{uses: []snapshot.PID{5}, says: drawn(5), asked: true, want: []snapshot.ProcessType{"C+G"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 6}, want: []snapshot.ProcessType{"C+G", "?"}},
			{after: 20 * time.Second, uses: []snapshot.PID{5, 6}, says: drawn(), asked: true, want: []snapshot.ProcessType{"C+G", "C"}},
		},
		"a process starts where there is no screen": {
			{uses: []snapshot.PID{5}, on: 1, says: drawn(5), asked: true, want: []snapshot.ProcessType{"C+G"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 6}, on: 1, want: []snapshot.ProcessType{"C+G", "C"}},
		},
		"no answer": {
			{uses: []snapshot.PID{5}, err: &nvidiasmi.ExitError{Err: nvidiasmi.ErrFailed, ExitCode: 1}, asked: true, want: []snapshot.ProcessType{"?"}},
			{after: 10 * time.Second, uses: []snapshot.PID{6}, want: []snapshot.ProcessType{"?"}},
			{after: time.Hour, uses: []snapshot.PID{6}, err: nvidiasmi.ErrGarbled, asked: true, want: []snapshot.ProcessType{"?"}},
		},
		"no answer where there is no screen": {{uses: []snapshot.PID{5}, on: 1, err: nvidiasmi.ErrGarbled, asked: true, want: []snapshot.ProcessType{"C"}}},
		"no answer in time": {
			{uses: []snapshot.PID{5}, err: nvidiasmi.ErrTimeout, asked: true, want: []snapshot.ProcessType{"?"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5}, want: []snapshot.ProcessType{"?"}},
			{after: 20 * time.Second, uses: []snapshot.PID{5}, says: drawn(5), asked: true, want: []snapshot.ProcessType{"C+G"}},
		},
		"an answer that comes after the look": {
			{uses: []snapshot.PID{5, 7}, err: nvidiasmi.ErrTimeout, asked: true, want: []snapshot.ProcessType{"?", "?"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 7, 6}, since: drawn(5), want: []snapshot.ProcessType{"C+G", "C", "?"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 7, 6}, want: []snapshot.ProcessType{"C+G", "C", "?"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 7, 6}, says: drawn(6), asked: true, want: []snapshot.ProcessType{"C+G", "C", "C+G"}},
		},
		"an answer to an earlier question": {
			{uses: []snapshot.PID{5}, says: nvidiasmi.Details{Displays: screens, Drawing: drawn(5).Drawing, Time: nvidiasmi.Time{Late: true}}, asked: true, want: []snapshot.ProcessType{"?"}},
			{uses: []snapshot.PID{6}, on: 1, want: []snapshot.ProcessType{"C"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5}, since: drawn(5), want: []snapshot.ProcessType{"C+G"}},
		},
		"whether a screen is active is unknown": {
			{uses: []snapshot.PID{5}, on: 2, says: drawn(5), asked: true, want: []snapshot.ProcessType{"C+G"}},
			{after: 10 * time.Second, uses: []snapshot.PID{6}, on: 2, want: []snapshot.ProcessType{"?"}},
			{after: time.Hour, uses: []snapshot.PID{6}, on: 2, err: nvidiasmi.ErrGarbled, asked: true, want: []snapshot.ProcessType{"?"}},
		},
	})
}

func TestTypesWhileNvidiaSMIHangs(t *testing.T) {
	lookForTypes(t, map[string][]typesLook{
		"it hangs where there is no screen": {
			{uses: []snapshot.PID{5}, on: 1, err: nvidiasmi.ErrTimeout, asked: true, want: []snapshot.ProcessType{"C"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 6}, on: 1, want: []snapshot.ProcessType{"C", "C"}},
			{after: 20 * time.Second, uses: []snapshot.PID{5, 6}, on: 1, err: nvidiasmi.ErrHung, asked: true, want: []snapshot.ProcessType{"C", "C"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 6}, on: 1, since: drawn(6), want: []snapshot.ProcessType{"C", "C+G"}},
		},
		"it hangs on a desktop": {
			{uses: []snapshot.PID{5}, says: drawn(5), asked: true, want: []snapshot.ProcessType{"C+G"}},
			{after: 30 * time.Second, uses: []snapshot.PID{5, 6}, err: nvidiasmi.ErrTimeout, asked: true, want: []snapshot.ProcessType{"C+G", "?"}},
			{after: 10 * time.Second, uses: []snapshot.PID{5, 6}, want: []snapshot.ProcessType{"C+G", "?"}},
			{after: time.Hour, uses: []snapshot.PID{5, 6, 7}, err: nvidiasmi.ErrHung, asked: true, want: []snapshot.ProcessType{"C+G", "?", "?"}},
			{after: time.Minute, uses: []snapshot.PID{5, 6, 7}, says: drawn(5, 7), asked: true, want: []snapshot.ProcessType{"C+G", "C", "C+G"}},
		},
		"it has never answered, not even about screens": {
			{uses: []snapshot.PID{5}, on: 2, err: nvidiasmi.ErrHung, asked: true, want: []snapshot.ProcessType{"?"}},
			{after: time.Hour, uses: []snapshot.PID{5}, on: 2, err: nvidiasmi.ErrHung, asked: true, want: []snapshot.ProcessType{"?"}},
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
				s := &snapshot.Snapshot{Devices: []snapshot.Device{{Index: 0}, {Index: 1}, {Index: 2}}}
				for _, pid := range l.uses {
					s.Processes = append(s.Processes, snapshot.Process{PID: pid, Start: 1, Usage: []snapshot.DeviceUsage{{Index: l.on}}})
				}
				ctx := snapshot.WithTypes(t.Context())
				if l.plain {
					ctx = t.Context()
				}
				now = now.Add(l.after)
				asked := false
				types.Set(ctx, s, map[snapshot.DeviceIndex]snapshot.GPUUUID{0: "GPU-0", 1: "GPU-1", 2: "GPU-2"}, now, func(_ context.Context, since time.Time) (nvidiasmi.Details, error) {
					if !since.IsZero() && l.since.Displays == nil {
						return nvidiasmi.Details{}, nvidiasmi.ErrTimeout
					} else if !since.IsZero() {
						return l.since, nil
					}
					asked, l.says.Displays = true, screens
					return l.says, l.err
				})
				require.Equal(t, l.asked, asked)
				for i, want := range l.want {
					require.Equal(t, want, s.Processes[i].Usage[0].Type)
				}
				require.False(t, s.Devices[1].Display)
				if asked {
					require.True(t, s.Devices[0].Display && s.Devices[2].Display, "it is active, or may be")
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
	for _, want := range []snapshot.ProcessType{"C+G", "C+G", "?"} {
		s := &snapshot.Snapshot{Processes: []snapshot.Process{{PID: 5, Usage: []snapshot.DeviceUsage{{}}}}}
		types.Set(snapshot.WithTypes(t.Context()), s, map[snapshot.DeviceIndex]snapshot.GPUUUID{0: "GPU-0"}, now, func(context.Context, time.Time) (nvidiasmi.Details, error) {
			if calls++; calls > 1 {
				return nvidiasmi.Details{}, errors.New("nvidia-smi is broken")
			}
			return drawn(5), nil
		})
		require.Equal(t, want, s.Processes[0].Usage[0].Type)
		now = now.Add(20 * time.Second)
	}
	require.Equal(t, 2, calls)
}

// TestTypesDoNotDelayOthers: whoever doesn't want types doesn't wait for an answer about them.
func TestTypesDoNotDelayOthers(t *testing.T) {
	var types nvidiasmi.Types
	now, gpus := time.Now(), map[snapshot.DeviceIndex]snapshot.GPUUUID{0: "GPU-0"}
	look := func() *snapshot.Snapshot {
		return &snapshot.Snapshot{Processes: []snapshot.Process{{PID: 5, Start: 1, Usage: []snapshot.DeviceUsage{{Index: 0}}}}}
	}
	hung, asked, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	wanting := look()
	go func() {
		defer close(done)
		types.Set(snapshot.WithTypes(t.Context()), wanting, gpus, now, func(context.Context, time.Time) (nvidiasmi.Details, error) {
			close(asked)
			<-hung
			return drawn(5), nil
		})
	}()
	<-asked
	plain := make(chan struct{})
	go func() {
		defer close(plain)
		types.Set(t.Context(), look(), gpus, now, nil)
	}()
	select {
	case <-plain:
	case <-time.After(5 * time.Second):
		t.Error("it waits for nvidia-smi")
	}
	close(hung)
	<-done
	<-plain
	require.Equal(t, snapshot.ProcessType("C+G"), wanting.Processes[0].Usage[0].Type)
	later := look()
	types.Set(t.Context(), later, gpus, now, nil)
	require.Equal(t, snapshot.ProcessType("C+G"), later.Processes[0].Usage[0].Type, "the answer is kept")
}
