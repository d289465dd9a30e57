package nvidiasmi_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// slow is a Runner that takes some time for an answer, which names the number of the call as a PID.
func slow(calls *atomic.Int32, takes func() time.Duration) runner {
	return func(ctx context.Context, _ ...string) (nvidiasmi.RunResult, error) {
		n := calls.Add(1)
		select {
		case <-time.After(takes()):
			return nvidiasmi.RunResult{Stdout: fmt.Appendf(nil, "GPU-1, %d, 5\n", n)}, nil
		case <-ctx.Done():
			return nvidiasmi.RunResult{}, context.Cause(ctx)
		}
	}
}

// keeping is a Querier of slow answers, which outlive those who wait, and the number of its calls.
func keeping(t *testing.T, takes func() time.Duration) (*nvidiasmi.Querier, *atomic.Int32) {
	calls := new(atomic.Int32)
	querier := nvidiasmi.New(slow(calls, takes), 0)
	querier.Keep(t.Context())
	return querier, calls
}

func seconds(n time.Duration) func() time.Duration {
	return func() time.Duration { return n * time.Second }
}

// look asks as a host does that has 9 of 10 seconds. It returns the number of the call that the answer
// is from, 0 for none.
func look(t *testing.T, q *nvidiasmi.Querier, oldest time.Duration) (call int, late bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
	defer cancel()
	usage, err := q.Apps(ctx, oldest)
	if err != nil {
		require.ErrorIs(t, err, nvidiasmi.ErrTimeout)
		return 0, false
	}
	require.Len(t, usage.Apps, 1)
	require.LessOrEqual(t, time.Since(usage.Time.Began), max(oldest, 9*time.Second))
	return int(usage.Apps[0].PID), usage.Time.Late
}

func TestAnAnswerOutlivesTheLookThatWaited(t *testing.T) {
	for name, tt := range map[string]struct {
		takes  time.Duration
		oldest time.Duration
		calls  []int // of which each look, every 10 s, has the answer
		late   []bool
	}{
		"in time":               {6 * time.Second, time.Minute, []int{1, 2, 3}, []bool{false, false, false}},
		"slow":                  {12 * time.Second, time.Minute, []int{0, 1, 2, 3}, []bool{false, true, true, true}},
		"slower":                {15 * time.Second, time.Minute, []int{0, 1, 1, 2}, []bool{false, true, true, true}},
		"slower than max-age":   {70 * time.Second, time.Minute, []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, make([]bool, 10)},
		"no old answer allowed": {12 * time.Second, 0, []int{0, 0, 0}, make([]bool, 3)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				querier, _ := keeping(t, func() time.Duration { return tt.takes })
				begun := time.Now()
				for i, want := range tt.calls {
					time.Sleep(time.Until(begun.Add(time.Duration(i) * 10 * time.Second)))
					call, late := look(t, querier, tt.oldest)
					require.Equal(t, want, call, "look %d", i+1)
					require.Equal(t, tt.late[i], late, "look %d", i+1)
				}
			})
		})
	}
}

// TestAHangingDriverDelaysNoLook: after the usual timeout a look no longer waits for it, and it ends
// when the driver answers again.
func TestAHangingDriverDelaysNoLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		querier, calls := keeping(t, func() time.Duration {
			if since := time.Since(begun); since >= time.Second && since < 30*time.Minute {
				return time.Hour
			}
			return time.Second
		})
		call, late := look(t, querier, time.Minute)
		require.Equal(t, 1, call)
		require.False(t, late)
		for range 3 {
			call, late = look(t, querier, time.Minute)
			require.Equal(t, 1, call)
			require.True(t, late)
		}
		for range 5 {
			before := time.Now()
			look(t, querier, time.Minute)
			require.Zero(t, time.Since(before))
		}
		require.Equal(t, int32(2), calls.Load(), "one is outstanding")
		time.Sleep(time.Minute)
		call, _ = look(t, querier, time.Minute)
		require.Zero(t, call, "the answer is too old")
		time.Sleep(time.Hour)
		call, late = look(t, querier, time.Minute)
		require.Equal(t, 3, call)
		require.False(t, late)
	})
}

// TestALateQuestionBeginsACall: one before it has used up the time of a look, and the next look has the answer.
func TestALateQuestionBeginsACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		querier, _ := keeping(t, seconds(6))
		ended, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		require.ErrorIs(t, proctest.Try(querier.Apps(ended, time.Minute)).Err, nvidiasmi.ErrTimeout)
		time.Sleep(10 * time.Second)
		require.EqualValues(t, 1, proctest.Try(querier.Apps(ended, time.Minute)).OK(t).Apps[0].PID)
		time.Sleep(10 * time.Second)
	})
}

// TestQuestionsWaitForEachOther: however many wait for a driver that is slow, it hangs for none of them.
func TestQuestionsWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		querier, calls := keeping(t, seconds(3))
		errs := make(chan error, 3)
		go func() { _, err := querier.Apps(t.Context(), 0); errs <- err }()
		time.Sleep(time.Second)
		for _, ask := range []func() error{
			func() error { _, err := querier.List(t.Context(), 0); return err },
			func() error { _, err := querier.Modes(t.Context()); return err },
		} {
			go func() { errs <- ask() }()
			time.Sleep(time.Millisecond)
		}
		for range 3 {
			require.NotErrorIs(t, <-errs, nvidiasmi.ErrHung)
		}
		require.EqualValues(t, 3, calls.Load())
	})
}

// TestANewCallIsNewerThanTheQuestion: what is verified before a signal comes from no call that was begun before.
func TestANewCallIsNewerThanTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		querier, calls := keeping(t, seconds(6))
		go querier.Apps(t.Context(), 0) //nolint:errcheck // it is only under way
		time.Sleep(5 * time.Second)
		usage := proctest.Try(querier.Apps(t.Context(), 0)).OK(t)
		require.EqualValues(t, 2, usage.Apps[0].PID)
		require.False(t, usage.Time.Late)
		without := nvidiasmi.WithoutCall(t.Context())
		again := proctest.Try(querier.Apps(without, time.Minute)).OK(t, "no new call is made")
		require.Equal(t, usage.Apps, again.Apps)
		require.ErrorIs(t, proctest.Try(querier.Apps(without, 0)).Err, nvidiasmi.ErrTimeout)
		require.EqualValues(t, 2, calls.Load())
	})
}

// TestAFailureIsNewerThanAnAnswer: nvidia-smi that fails is not slow.
func TestAFailureIsNewerThanAnAnswer(t *testing.T) {
	text := "GPU-1, 711, 5\n"
	querier := nvidiasmi.New(runner(func(context.Context, ...string) (nvidiasmi.RunResult, error) {
		return nvidiasmi.RunResult{Stdout: []byte(text)}, nil
	}), 0)
	querier.Keep(t.Context())
	_, err := querier.Apps(t.Context(), time.Minute)
	require.NoError(t, err)
	text = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
	for range 2 {
		_, err = querier.Apps(t.Context(), time.Minute)
	}
	require.ErrorIs(t, err, nvidiasmi.ErrNoDriver, "the answer before is forgotten")
}
