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

// ageBy makes everything in a memory that has a beginning begin later, so that each part changes.
func ageBy(m *controller.FleetMemory, d time.Duration) {
	for key, since := range m.Rules.Idle {
		m.Rules.Idle[key] = since.Add(d)
	}
	for key, p := range m.Rules.Present {
		m.Rules.Present[key] = enforce.Presence{Since: p.Since.Add(d), Cycles: p.Cycles}
	}
	m.Rules.Time = m.Rules.Time.Add(d)
}

// An etcd is so slow that no poll reads all: each part is read nevertheless, again and again, also
// if one of them never comes. What is known to be outdated for long is missing. The standby's clock is ahead.
func TestAnEtcdThatIsSlow(t *testing.T) {
	for _, stuck := range []string{"", "part-07"} {
		synctest.Test(t, func(t *testing.T) {
			const ahead = 10 * time.Minute
			m, begun := memoryOf(100), time.Now()
			clock := func() time.Duration { return time.Since(begun) }
			s := &slow{newStore(), 100 * time.Millisecond, ""}
			p := handover.Publisher{Store: s.store, Key: "/lab"}
			f := &handover.Follower{Store: s, Key: "/lab", Now: func() time.Time { return noon.Add(clock() + ahead) }, Clock: clock}
			const within = 350 * time.Millisecond // for the head and 16 parts
			for cycle := range 22 {
				time.Sleep(time.Duration(cycle)*time.Second - clock())
				require.NoError(t, p.Publish(t.Context(), 7, encode(t, &m, noon.Add(clock()))))
				ageBy(&m, time.Second) // all parts
				require.Error(t, poll(t, f, within), "never reads all")
				s.stuck = stuck
			}
			now := f.Now()
			got, missing, err := f.Memory(now)
			require.NoError(t, err)
			require.Equal(t, len(stuck)/7, missing)
			require.Equal(t, 48-missing, f.Behind())
			require.NotEmpty(t, got.Rules.Idle)
			for key, since := range got.Rules.Idle { // an hour ago at noon
				require.InDelta(t, 4, now.Add(-time.Hour).Sub(since).Seconds(), 4, key)
			}
		})
	}
}

// An etcd that is far away returns all parts within a poll.
func TestAnEtcdThatIsFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, begun := memoryOf(100), time.Now()
		s := &slow{newStore(), 200 * time.Millisecond, ""}
		require.NoError(t, (&handover.Publisher{Store: s.store, Key: "/lab"}).Publish(t.Context(), 7, encode(t, &m, noon)))
		f := &handover.Follower{Store: s, Key: "/lab", Now: func() time.Time { return noon }, Clock: func() time.Duration { return time.Since(begun) }}
		require.NoError(t, poll(t, f, 2*time.Second))
		require.Zero(t, f.Behind())
		_, missing, err := f.Memory(noon)
		require.NoError(t, err)
		require.Zero(t, missing)
	})
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
		got, missing, err := f.Memory(now)
		require.NoError(t, err)
		require.Zero(t, missing)
		require.Len(t, got.Rules.Hosts, 100)

		// It has written meanwhile, and this one reads the head alone: the rest is from before.
		s.fails = nil
		ageBy(&m, time.Minute)
		require.NoError(t, (&handover.Publisher{Store: s.store, Key: "/lab"}).Publish(t.Context(), 7, encode(t, &m, now)))
		s.stuck = "part-"
		require.Error(t, poll(t, f, 100*time.Millisecond))
		require.Zero(t, f.Behind(), "too old to be continued")
		got, missing, err = f.Memory(now)
		require.NoError(t, err)
		require.Equal(t, 64, missing)
		require.Empty(t, got.Rules.Hosts)
		require.NotNil(t, got.Operator.Hold)
	})
}
