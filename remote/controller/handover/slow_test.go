package handover_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/controller/handover"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// slow is a store of which each poll reads a few keys, and never those of which the name ends with stuck.
type slow struct {
	*store
	left  int
	stuck string
}

func (s *slow) Get(ctx context.Context, key string) (*etcd.Entry, error) {
	if s.left--; s.left < 0 || s.stuck != "" && strings.HasSuffix(key, s.stuck) {
		return nil, context.DeadlineExceeded
	}
	return s.store.Get(ctx, key)
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
		const ahead = 10 * time.Minute
		m, now := memoryOf(100), noon
		s := &slow{newStore(), 1000, ""}
		p := handover.Publisher{Store: s.store, Key: "/lab"}
		f := &handover.Follower{Store: s, Key: "/lab", Now: func() time.Time { return now.Add(ahead) }, Clock: func() time.Duration { return now.Sub(noon) }}
		publish := func() {
			require.NoError(t, p.Publish(t.Context(), 7, encode(t, &m, now)))
			ageBy(&m, time.Second)
			now = now.Add(time.Second)
		}
		publish()
		s.left = 20
		require.Error(t, f.Poll(t.Context()), "never reads all")
		s.stuck = stuck
		for range 20 {
			publish() // all parts
			s.left = 12
			require.Error(t, f.Poll(t.Context()))
		}
		got, missing, err := f.Memory(now.Add(ahead))
		require.NoError(t, err)
		require.Equal(t, len(stuck)/7, missing)
		require.NotEmpty(t, got.Rules.Idle)
		for key, since := range got.Rules.Idle { // an hour ago at noon
			require.InDelta(t, 8, now.Add(ahead-time.Hour).Sub(since).Seconds(), 8, key)
		}
	}
}

// While etcd doesn't answer at all, a memory is as old as its head says, and none of it is dropped.
func TestAnEtcdThatDoesNotAnswer(t *testing.T) {
	m, now := memoryOf(100), noon
	s := &slow{newStore(), 1000, ""}
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
	s.left = 1
	require.Error(t, f.Poll(t.Context()))
	got, missing, err = f.Memory(now)
	require.NoError(t, err)
	require.Equal(t, 64, missing)
	require.Empty(t, got.Rules.Hosts)
	require.NotNil(t, got.Operator.Hold)
}
