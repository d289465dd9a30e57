package remote_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote"
)

func fleet(n int) []remote.Host {
	hosts := make([]remote.Host, n)
	for i := range hosts {
		hosts[i].Name = fmt.Sprintf("h%d", i)
	}
	return hosts
}

func TestEachKeepsTheOrderOfTheHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := fleet(50)
		results := remote.Each(t.Context(), hosts, 64, func(_ context.Context, h remote.Host) (string, error) {
			var n int
			_, _ = fmt.Sscanf(h.Name, "h%d", &n)
			time.Sleep(time.Duration(50-n) * time.Second) // the first ends last
			return "from " + h.Name, nil
		})
		require.Len(t, results, 50)
		for i, r := range results {
			require.Equal(t, hosts[i], r.Host)
			require.Equal(t, "from "+hosts[i].Name, r.Value)
			require.NoError(t, r.Err)
		}
	})
}

func TestEachRunsAsManyAsAllowedAndNoMore(t *testing.T) {
	for _, test := range []struct {
		limit, hosts int
		most         int32
		takes        time.Duration
	}{
		{limit: 4, hosts: 12, most: 4, takes: 3 * time.Second},
		{limit: 64, hosts: 12, most: 12, takes: time.Second},
		{limit: 1, hosts: 3, most: 1, takes: 3 * time.Second},
		{limit: 0, hosts: 3, most: 1, takes: 3 * time.Second},
		{limit: -5, hosts: 3, most: 1, takes: 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var running, most atomic.Int32
			start := time.Now()
			remote.Each(t.Context(), fleet(test.hosts), test.limit, func(context.Context, remote.Host) (int, error) {
				running.Add(1)
				time.Sleep(time.Second / 2)
				most.Store(max(most.Load(), running.Load())) // the same for all that run now
				time.Sleep(time.Second / 2)
				running.Add(-1)
				return 0, nil
			})
			require.Equal(t, test.most, most.Load(), "limit %d", test.limit)
			require.Equal(t, test.takes, time.Since(start), "limit %d", test.limit)
		})
	}
}

func TestOneHostsErrorIsThatHostsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := errors.New("dead")
		results := remote.Each(t.Context(), fleet(3), 2, func(ctx context.Context, h remote.Host) (string, error) {
			if h.Name == "h0" {
				return "half", dead
			}
			time.Sleep(time.Minute)
			return "whole", ctx.Err()
		})
		require.ErrorIs(t, results[0].Err, dead)
		require.Equal(t, "half", results[0].Value, "what came before the error is kept")
		for _, r := range results[1:] {
			require.NoError(t, r.Err)
			require.Equal(t, "whole", r.Value)
		}
	})
}

func TestEachEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(90*time.Second, func() { cancel(stop) })
		begun := map[string]bool{}
		results := remote.Each(ctx, fleet(5), 1, func(ctx context.Context, h remote.Host) (bool, error) {
			begun[h.Name] = true // one at a time
			select {
			case <-time.After(time.Minute):
				return true, nil
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
		})
		require.NoError(t, results[0].Err, "was done before")
		require.True(t, results[0].Value)
		for i, r := range results[1:] {
			require.ErrorIs(t, r.Err, stop)
			require.False(t, r.Value)
			require.Equal(t, fmt.Sprintf("h%d", i+1), r.Host.Name, "a host that was not begun is named too")
		}
		require.Equal(t, map[string]bool{"h0": true, "h1": true}, begun)
	})
}

func TestEachOfNoHosts(t *testing.T) {
	require.Empty(t, remote.Each(t.Context(), nil, 8, func(context.Context, remote.Host) (int, error) {
		t.Error("called without a host")
		return 0, nil
	}))
}

func TestWhile(t *testing.T) {
	var over error
	ctx := remote.While(t.Context(), func() error { return over })
	require.NoError(t, remote.MayBegin(ctx))
	over = errors.New("over")
	require.Equal(t, over, remote.MayBegin(ctx))
	require.Equal(t, over, remote.MayBegin(context.WithoutCancel(ctx)), "also for what outlasts the run")
	require.NoError(t, remote.MayBegin(t.Context()), "without a condition")
}

func TestWithGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := errors.New("over")
		ctx, end := context.WithCancelCause(t.Context())
		longer, cancel := remote.WithGracePeriod(ctx, 2*time.Second)
		defer cancel()
		other, cancelOther := remote.WithGracePeriod(ctx, time.Hour)
		time.Sleep(time.Minute)
		require.NoError(t, longer.Err())

		begun := time.Now()
		end(over)
		require.NoError(t, longer.Err())
		<-longer.Done()
		require.Equal(t, 2*time.Second, time.Since(begun))
		require.Equal(t, over, context.Cause(longer))
		require.NoError(t, other.Err())
		cancelOther()
		require.ErrorIs(t, other.Err(), context.Canceled)
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
