package handover_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/controller/handover"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// ahead is a time as a wall clock shows it that was set forward by d. Its monotonic clock doesn't change.
func ahead(t time.Time, d time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(int64(d/time.Second)) << 30 // the seconds of a time.Time
	return t
}

func TestAhead(t *testing.T) {
	now := time.Now()
	for _, d := range []time.Duration{0, time.Hour, -time.Hour} {
		require.Zero(t, ahead(now, d).Sub(now), "by the monotonic clock")
		require.Equal(t, d, ahead(now, d).Round(0).Sub(now.Round(0)), "by the wall clock")
	}
}

// fleet is a leader with a clock that is set while it leads, and a standby with the right time.
type fleet struct {
	*store
	handover.Publisher
	handover.Follower
	m      controller.FleetMemory
	begun  time.Time // of what is idle, by the leader's clock of then
	passed time.Duration
	set    time.Duration // by how much the leader's clock is ahead
}

// newFleet is one of which all devices become idle now.
func newFleet(set time.Duration) *fleet {
	f := &fleet{store: newStore(), m: memoryOf(20), begun: time.Now(), set: set}
	for key := range f.m.Rules.Idle {
		f.m.Rules.Idle[key] = f.leader()
	}
	f.Publisher.Store, f.Publisher.Key = f.store, "/lab"
	f.Follower.Store, f.Follower.Key, f.Now, f.Clock = f.store, "/lab", f.now, func() time.Duration { return f.passed }
	return f
}

func (f *fleet) now() time.Time    { return f.begun.Add(f.passed) }
func (f *fleet) leader() time.Time { return ahead(f.now(), f.set) }

// publish publishes the memory a second later.
func (f *fleet) publish(t *testing.T) error {
	f.passed += time.Second
	f.m.Rules.Time = f.leader()
	return f.Publish(t.Context(), 7, encode(t, &f.m, f.leader()))
}

// check checks that a new leader knows for how long devices have been idle, if it found the memory.
func (f *fleet) check(t *testing.T) (found bool) {
	t.Helper()
	got, found, err := f.Memory(f.now())
	require.NoError(t, err)
	require.NotNil(t, got.Operator.Hold)
	require.WithinDuration(t, f.now(), got.Rules.Time, 5*time.Second)
	for host := range got.Rules.Hosts {
		require.InDelta(t, f.passed.Seconds(), f.now().Sub(got.Rules.Idle[string(host)+"/alice/1/0"]).Seconds(), 3, host)
	}
	require.Equal(t, found, len(got.Rules.Hosts) == len(f.m.Rules.Hosts))
	return found
}

// complete checks that a new leader knows all.
func (f *fleet) complete(t *testing.T) {
	t.Helper()
	require.True(t, f.check(t))
}

// The leader's clock is set: what has been idle for 10 seconds is so for the next leader. A small correction
// has nothing written again.
func TestTheLeadersClockIsSet(t *testing.T) {
	for set, again := range map[time.Duration]bool{3 * time.Hour: true, -3 * time.Hour: true, -20 * time.Minute: true, time.Second: false} {
		f := newFleet(-time.Hour)
		cycles := func(count int) {
			t.Helper()
			for range count {
				require.NoError(t, f.publish(t))
				require.NoError(t, f.Poll(t.Context()))
				f.complete(t)
			}
		}
		require.NoError(t, f.Poll(t.Context()))
		cycles(10)
		f.requests, f.set = nil, f.set+set
		cycles(10)
		require.Equal(t, again, f.requests[0] > 1, "%s: %v", set, f.requests)
		require.Equal(t, slices.Repeat([]int{1}, 9), f.requests[1:], "%s: they are written once", set)
	}
}

// What was learned about the clock of a leader isn't applied to what the next one wrote, also if that was read so
// rarely that nothing could be learned of it.
func TestTheNextLeaderHasAnotherClock(t *testing.T) {
	f := newFleet(-2 * time.Hour)
	for range 3 {
		require.NoError(t, f.Poll(t.Context()))
		require.NoError(t, f.publish(t))
	}
	require.NoError(t, f.Poll(t.Context()))
	f.complete(t)
	f.passed, f.set = f.passed+time.Minute, 0
	for key := range f.m.Rules.Idle {
		f.m.Rules.Idle[key] = f.begun
	}
	next := handover.Publisher{Store: f.store, Key: "/lab"}
	f.m.Rules.Time, f.epoch = f.leader(), 8
	require.NoError(t, next.Publish(t.Context(), 8, encode(t, &f.m, f.leader())))
	require.NoError(t, f.Poll(t.Context()))
	f.complete(t)
}

// The clock of a controller is set after it took over: what it inherited is as old as before.
func TestAClockThatIsSetAfterATakeOver(t *testing.T) {
	f := newFleet(0)
	require.NoError(t, f.publish(t))
	require.NoError(t, f.Poll(t.Context()))
	got, _, err := f.Memory(f.now())
	require.NoError(t, err)
	for _, set := range []time.Duration{0, 3 * time.Hour, -3 * time.Hour} {
		now := ahead(f.now(), set)
		for key, since := range got.Rules.Idle {
			require.Equal(t, f.passed, now.Sub(since), key)
		}
		require.Zero(t, now.Sub(got.Rules.Time))
	}
}

// The leader's clock is set while the standby reads too rarely to measure the difference between the clocks.
func TestTheClockIsSetBetweenTwoPolls(t *testing.T) {
	for _, set := range []time.Duration{3 * time.Hour, -20 * time.Minute, time.Second} {
		f := newFleet(-time.Hour)
		require.NoError(t, f.Poll(t.Context()))
		require.NoError(t, f.publish(t))
		require.NoError(t, f.Poll(t.Context()))
		f.complete(t)
		f.set += set
		f.passed += 4 * time.Second
		require.NoError(t, f.publish(t))
		require.NoError(t, f.Poll(t.Context()))
		f.complete(t)
	}
}

// between is a store in which something happens between the reading of the head and that of the memory.
type between struct {
	*store
	once sync.Once
	then func()
}

func (s *between) Get(ctx context.Context, key string) (*etcd.Entry, error) {
	if strings.HasSuffix(key, "/all") {
		s.once.Do(s.then)
	}
	return s.store.Get(ctx, key)
}

// A standby has the head of a clock and a memory of another one: it takes it as missing.
func TestAHeadOfAnotherClock(t *testing.T) {
	f := newFleet(-3 * time.Hour)
	require.NoError(t, f.Poll(t.Context()))
	require.NoError(t, f.publish(t))
	require.NoError(t, f.Poll(t.Context()))
	f.complete(t)
	f.set = 0
	require.NoError(t, f.publish(t))
	s := &slow{f.store, 0, "/all"}
	f.Follower.Store = s
	require.Error(t, poll(t, &f.Follower, 10*time.Millisecond))
	require.False(t, f.check(t), "it has the clock before")
	s.stuck = ""
	require.NoError(t, f.Poll(t.Context()))
	f.complete(t)

	f = newFleet(-3 * time.Hour)
	require.NoError(t, f.Poll(t.Context()))
	require.NoError(t, f.publish(t))
	f.Follower.Store = &between{store: f.store, then: func() {
		f.set = 0
		require.NoError(t, f.publish(t))
	}}
	require.NoError(t, f.Poll(t.Context()))
	require.False(t, f.check(t), "it has the clock after")
}
