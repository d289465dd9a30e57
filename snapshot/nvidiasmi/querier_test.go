package nvidiasmi_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// answers is a Runner that prints the text for the first argument, and fails for any other argument.
func answers(texts map[string]string) runner {
	return func(_ context.Context, args ...string) (nvidiasmi.RunResult, error) {
		name, _, _ := strings.Cut(args[0], "=")
		text, ok := texts[name]
		if !ok {
			return nvidiasmi.RunResult{}, errors.New("not expected: " + strings.Join(args, " "))
		}
		return stdout(text), nil
	}
}

func TestQuerierAsks(t *testing.T) {
	querier := nvidiasmi.New(answers(map[string]string{
		"--query-gpu":          "0, GPU-1, 16160, 3, 0, 31, 70.12, V100\n",
		"--query-compute-apps": "GPU-1, 711, 5\n",
		"-L":                   "GPU 0: V100 (UUID: GPU-1)\n",
	}), 0)
	require.Len(t, proctest.Try(querier.Devices(t.Context(), 0)).OK(t).GPUs, 1)
	require.Len(t, proctest.Try(querier.Apps(t.Context(), 0)).OK(t).Apps, 1)
	require.Len(t, proctest.Try(querier.List(t.Context(), 0)).OK(t), 1)
}

// Fakes and older drivers must understand these arguments.
func TestArguments(t *testing.T) {
	require.Equal(t, "--query-gpu=index,uuid,memory.total,memory.used,utilization.gpu,temperature.gpu,power.draw,name,driver_version --format=csv,noheader,nounits", strings.Join(nvidiasmi.DevicesArgs(), " "))
	require.Equal(t, "--query-compute-apps=gpu_uuid,pid,used_gpu_memory --format=csv,noheader,nounits", strings.Join(nvidiasmi.AppsArgs(), " "))
	require.Equal(t, "-L", strings.Join(nvidiasmi.ListArgs(), " "))
}

// TestModes: drivers that don't know some columns are asked without these, and with them every 64th time.
func TestModes(t *testing.T) {
	const all = "display_active,compute_mode,mig.mode.current,power.limit"
	for name, row := range map[string]struct {
		known, calls string // the columns that the driver knows, and those of each call
		values       string
		display      *bool
		mig          bool
		unusable     string
		limit        *float64
		problem      string
		failed       bool
	}{
		"all":             {known: all, calls: all + " " + all, values: ", Disabled, Default, Enabled, 300.00", display: new(false), mig: true, limit: new(300.0)},
		"before MIG":      {known: "display_active,compute_mode", calls: all + " display_active,compute_mode,power.limit display_active,compute_mode display_active,compute_mode", values: ", Enabled, Prohibited", display: new(true), unusable: "its compute mode is Prohibited"},
		"none":            {calls: all + " compute_mode,mig.mode.current,power.limit mig.mode.current,power.limit power.limit  "},
		"not reported":    {known: all, calls: all + " " + all, values: ", [N/A], [N/A], [N/A], [N/A]"},
		"not understood":  {known: all, calls: all + " " + all, values: ", [Unknown Error], Exclusive_Process, Disabled, 300.00", limit: new(300.0), problem: "display_active: Unknown Error"},
		"requires reset":  {known: all, calls: all + " " + all, values: ", Disabled, [GPU requires reset], Disabled, 1e9", display: new(false), problem: "compute_mode: GPU requires reset", failed: true},
		"not supported":   {known: all, calls: all + " " + all, values: ", [Not Supported], Exclusive_Thread, [Not Supported], [Insufficient Permissions]"},
		"older spellings": {known: all, calls: all + " " + all, values: ", Disabled, Prohibited, Disabled, 70\r", limit: new(70.0), display: new(false), unusable: "its compute mode is Prohibited"},
	} {
		var calls []string
		querier := nvidiasmi.New(runner(func(_ context.Context, args ...string) (nvidiasmi.RunResult, error) {
			_, columns, _ := strings.Cut(args[0], "driver_version")
			columns = strings.TrimPrefix(columns, ",")
			calls = append(calls, columns)
			for column := range strings.SplitSeq(columns, ",") {
				if column != "" && !strings.Contains(row.known, column) {
					text := "Field \"" + column + "\" is not a valid field to query.\n\n"
					return nvidiasmi.RunResult{Stdout: []byte(text), ExitCode: 2}, nil
				}
			}
			return stdout("0, GPU-1, 16160, 3, 0, 31, 70.12, a, b, 550.1" + row.values + "\n"), nil
		}), 0)
		for range 2 {
			devices := proctest.Try(querier.Devices(t.Context(), 0)).OK(t, name)
			d := devices.GPUs[0].Device
			require.Equal(t, []any{"a, b", "550.1", row.display, row.mig, row.unusable, row.problem, row.failed, row.limit}, []any{d.Name, d.Driver, d.Display, d.MIGMode, d.Unusable, d.Problem, d.Failed, d.PowerLimit}, name)
		}
		require.Equal(t, row.calls, strings.Join(calls, " "), name)
		calls, row.known = nil, all // a driver that is newer now
		for range 64 {
			_, _ = querier.Devices(t.Context(), 0)
		}
		require.Contains(t, calls, all, name)
		active := row.display == nil || *row.display // unknown is also active
		s := &snapshot.Snapshot{Devices: make([]snapshot.Device, 1), Processes: []snapshot.Process{{Usage: make([]snapshot.DeviceUsage, 1)}}}
		new(nvidiasmi.Types).Set(t.Context(), s, map[snapshot.DeviceIndex]snapshot.GPUUUID{0: "GPU-1"}, time.Now(), querier, nil)
		require.Equal(t, &active, s.Devices[0].Display, name)
		require.Equal(t, map[bool]snapshot.ProcessType{true: snapshot.TypePending}[active], s.Processes[0].Usage[0].Type, name)
	}
}

func TestNoDevicesInAnAnswerIsAnError(t *testing.T) {
	querier := nvidiasmi.New(answers(map[string]string{"--query-gpu": "\n"}), 0)
	require.ErrorIs(t, proctest.Try(querier.Devices(t.Context(), 0)).Err, nvidiasmi.ErrNoDevices)
}

// stuck is a Runner that ignores the end of the context, until release is called.
func stuck() (r runner, running *atomic.Int32, release func()) {
	gate := make(chan struct{})
	running = new(atomic.Int32)
	return func(context.Context, ...string) (nvidiasmi.RunResult, error) {
		running.Add(1)
		defer running.Add(-1)
		<-gate
		return stdout("late"), nil
	}, running, sync.OnceFunc(func() { close(gate) })
}

func TestAHungCallIsInProgressOnce(t *testing.T) {
	r, running, release := stuck()
	defer release()
	querier := nvidiasmi.New(r, 20*time.Millisecond)

	_, err := querier.Apps(t.Context(), 0)
	require.ErrorIs(t, err, nvidiasmi.ErrTimeout)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.EqualError(t, err, nvidiasmi.ErrTimeout.Error())
	for range 2 {
		require.ErrorIs(t, proctest.Try(querier.Apps(t.Context(), 0)).Err, nvidiasmi.ErrHung)
	}
	require.Equal(t, int32(1), running.Load())
}

// TestDetailsThatHang stop no other question: not of the same genv, nor of another one on the machine.
func TestDetailsThatHang(t *testing.T) {
	r, _, release := stuck()
	defer release()
	lock := lockFile(t)
	hold(t, lock+".details")
	for name, smi := range map[string]nvidiasmi.Runner{
		"in this process": runner(func(ctx context.Context, args ...string) (nvidiasmi.RunResult, error) {
			if args[0] == "-q" {
				return r(ctx, args...)
			}
			return stdout("GPU-1, 711, 5\n"), nil
		}),
		"in another one": nvidiasmi.Exec{Path: script(t, `echo 'GPU-1, 711, 5'`), Lock: lock},
	} {
		querier := nvidiasmi.New(smi, time.Minute)
		defer querier.Keep(t.Context())()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, proctest.Try(querier.Details(ctx, 0)).Err, nvidiasmi.ErrTimeout, name)
		usage := proctest.Try(querier.Apps(t.Context(), 0)).OK(t, name)
		require.Len(t, usage.Apps, 1)
	}
}

func TestAQuerierRecoversWhenTheHungCallReturns(t *testing.T) {
	r, running, release := stuck()
	defer release()
	hang := true
	querier := nvidiasmi.New(runner(func(ctx context.Context, args ...string) (nvidiasmi.RunResult, error) {
		if hang {
			return r(ctx, args...)
		}
		return stdout("GPU-1, 711, 5\n"), nil
	}), time.Minute)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, proctest.Try(querier.Apps(ctx, 0)).Err, nvidiasmi.ErrTimeout)

	release()
	require.Eventually(t, func() bool { return running.Load() == 0 }, 30*time.Second, time.Millisecond)
	hang = false
	usage := proctest.Try(querier.Apps(t.Context(), 0)).OK(t) // and what came late was dropped
	require.Len(t, usage.Apps, 1)
}

func TestACancelledCallReturnsTheCause(t *testing.T) {
	r, _, release := stuck()
	defer release()
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped by the user")
	cancel(stopped)
	_, err := nvidiasmi.New(r, 0).Apps(ctx, 0)
	require.ErrorIs(t, err, stopped)
	require.NotErrorIs(t, err, nvidiasmi.ErrTimeout)
}

func TestTheEarlierDeadlineCounts(t *testing.T) {
	r, _, release := stuck()
	defer release()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, proctest.Try(nvidiasmi.New(r, time.Hour).Apps(ctx, 0)).Err, nvidiasmi.ErrTimeout)
}

func TestConcurrentCallsRunOneByOne(t *testing.T) {
	var running, most atomic.Int32
	querier := nvidiasmi.New(runner(func(context.Context, ...string) (nvidiasmi.RunResult, error) {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer running.Add(-1)
		return stdout("GPU-1, 711, 5\n"), nil
	}), 0)
	var group sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		group.Go(func() { _, errs[i] = querier.Apps(t.Context(), 0) })
	}
	group.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, int32(1), most.Load())
}

func TestErrorsOfTheRunnerAreReturned(t *testing.T) {
	querier := nvidiasmi.New(runner(func(context.Context, ...string) (nvidiasmi.RunResult, error) {
		return nvidiasmi.RunResult{}, nvidiasmi.ErrNotInstalled
	}), 0)
	_, err := querier.Devices(t.Context(), 0)
	require.ErrorIs(t, err, nvidiasmi.ErrNotInstalled)
	require.ErrorIs(t, proctest.Try(querier.Apps(t.Context(), 0)).Err, nvidiasmi.ErrNotInstalled)
	require.ErrorIs(t, proctest.Try(querier.List(t.Context(), 0)).Err, nvidiasmi.ErrNotInstalled)
}
