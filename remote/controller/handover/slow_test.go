package handover_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/controller/handover"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// slow is a store of which each answer takes a while, and none comes for keys with stuck in their name.
type slow struct {
	*store
	takes time.Duration
	stuck string
}

func (s *slow) Get(ctx context.Context, key string) (*etcd.Entry, error) {
	takes := s.takes
	if s.stuck != "" && strings.Contains(key, s.stuck) {
		takes = time.Hour
	}
	select {
	case <-time.After(takes):
		return s.store.Get(ctx, key)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// poll polls for at most a while.
func poll(t *testing.T, f *handover.Follower, within time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return f.Poll(ctx)
}

// ageBy makes everything in a memory that has a beginning begin later.
func ageBy(m *controller.FleetMemory, d time.Duration) {
	for key, since := range m.Rules.Idle {
		m.Rules.Idle[key] = since.Add(d)
	}
	for key, p := range m.Rules.Present {
		m.Rules.Present[key] = enforce.Presence{Since: p.Since.Add(d), Cycles: p.Cycles}
	}
	m.Rules.Time = m.Rules.Time.Add(d)
}

// While etcd doesn't answer at all, a memory is as old as its head says, and none of it is dropped.
func TestAnEtcdThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, now := memoryOf(100), noon
		s := &slow{newStore(), 0, ""}
		require.NoError(t, (&handover.Publisher{Store: s.store, Key: "/lab"}).Publish(t.Context(), 7, encode(t, &m, now)))
		f := &handover.Follower{Store: s, Key: "/lab", Now: func() time.Time { return now }, Clock: func() time.Duration { return now.Sub(noon) }}
		require.NoError(t, f.Poll(t.Context()))
		s.fails, now = context.DeadlineExceeded, noon.Add(10*time.Minute)
		require.Error(t, f.Poll(t.Context()))
		got, found, err := f.Memory(now)
		require.NoError(t, err)
		require.True(t, found)
		require.Len(t, got.Rules.Hosts, 100)

		// It has written meanwhile, and this one reads the head alone: the rest is from before.
		s.fails = nil
		ageBy(&m, time.Minute)
		require.NoError(t, (&handover.Publisher{Store: s.store, Key: "/lab"}).Publish(t.Context(), 7, encode(t, &m, now)))
		s.stuck = "/all"
		require.Error(t, poll(t, f, 100*time.Millisecond))
		require.False(t, f.Behind(), "too old to be continued")
		got, found, err = f.Memory(now)
		require.NoError(t, err)
		require.False(t, found)
		require.Empty(t, got.Rules.Hosts)
		require.NotNil(t, got.Operator.Hold)
	})
}

// The head comes and the memory doesn't: the one from before is continued for some seconds.
func TestAMemoryThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, now := memoryOf(100), noon
		s := &slow{newStore(), 0, ""}
		p := handover.Publisher{Store: s.store, Key: "/lab"}
		f := &handover.Follower{Store: s, Key: "/lab", Now: func() time.Time { return now }, Clock: func() time.Duration { return now.Sub(noon) }}
		for _, row := range []struct {
			after         time.Duration
			stuck         string
			found, behind bool
		}{{0, "", true, false}, {5 * time.Second, "/all", true, true}, {4 * time.Second, "/all", true, true}, {3 * time.Second, "/all", false, false}, {time.Second, "", true, false}} {
			now, s.stuck = now.Add(row.after), row.stuck
			ageBy(&m, time.Second)
			require.NoError(t, p.Publish(t.Context(), 7, encode(t, &m, now)))
			require.Equal(t, row.stuck != "", poll(t, f, 100*time.Millisecond) != nil)
			_, found, err := f.Memory(now)
			require.NoError(t, err)
			require.Equal(t, []bool{row.found, row.behind}, []bool{found, f.Behind()}, now)
		}
	})
}
