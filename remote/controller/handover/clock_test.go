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
	"github.com/seed-3119e985/genv/snapshot"
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

// newLongFleet is newFleet with a memory that needs several requests.
func newLongFleet(set time.Duration) *fleet {
	f := newFleet(set)
	f.m = long("v1", f.leader())
	return f
}

// publish publishes the memory a second later.
func (f *fleet) publish(t *testing.T) error {
	f.passed += time.Second
	f.m.Rules.Time = f.leader()
	return f.Publish(t.Context(), 7, encode(t, &f.m, f.leader()))
}

// check checks that a new leader knows for how long devices have been idle, of each host that it knows. It
// returns how many hosts and parts are missing.
func (f *fleet) check(t *testing.T) (hosts, parts int) {
	t.Helper()
	got, parts, err := f.Memory(f.now())
	require.NoError(t, err)
	require.NotNil(t, got.Operator.Hold)
	require.WithinDuration(t, f.now(), got.Rules.Time, 5*time.Second)
	for host := range got.Rules.Hosts {
		require.InDelta(t, f.passed.Seconds(), f.now().Sub(got.Rules.Idle[string(host)+"/alice/1/0"]).Seconds(), 3, host)
	}
	return len(f.m.Rules.Hosts) - len(got.Rules.Hosts), parts
}

// complete checks that a new leader knows all.
func (f *fleet) complete(t *testing.T) {
	t.Helper()
	hosts, parts := f.check(t)
	require.Zero(t, hosts+parts)
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

// A leader is killed while it writes all parts again, since its clock was set: those with times of the clock
// as it was are missing. One that isn't killed goes on where etcd stopped answering.
func TestACutAfterTheClockWasSet(t *testing.T) {
	f := newLongFleet(-3 * time.Hour)
	require.NoError(t, f.publish(t))
	f.set, f.requests, f.most = 0, nil, 2
	require.Error(t, f.publish(t))
	require.NoError(t, f.Poll(t.Context()))
	hosts, parts := f.check(t)
	require.Less(t, hosts, 120)
	require.Positive(t, hosts)
	require.Positive(t, parts)
	f.most = -1
	require.NoError(t, f.publish(t))
	require.NoError(t, f.Poll(t.Context()))
	f.complete(t)
	require.Less(t, len(f.requests), 6, "it goes on where etcd stopped answering")
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

// between is a store in which something happens between the reading of the head and that of the parts.
type between struct {
	*store
	once sync.Once
	then func()
}

func (s *between) Get(ctx context.Context, key string) (*etcd.Entry, error) {
	if strings.Contains(key, "part-") {
		s.once.Do(s.then)
	}
	return s.store.Get(ctx, key)
}

// A standby has the head of a clock and parts of another one: it takes them as missing.
func TestAHeadOfAnotherClock(t *testing.T) {
	f := newFleet(-3 * time.Hour)
	require.NoError(t, f.Poll(t.Context()))
	require.NoError(t, f.publish(t))
	require.NoError(t, f.Poll(t.Context()))
	f.complete(t)
	f.set = 0
	require.NoError(t, f.publish(t))
	s := &slow{f.store, 0, "part-"}
	f.Follower.Store = s
	require.Error(t, poll(t, &f.Follower, 10*time.Millisecond))
	hosts, parts := f.check(t)
	require.Equal(t, []int{20, len(f.parts())}, []int{hosts, parts}, "they have the clock before")
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
	hosts, parts = f.check(t)
	require.Equal(t, []int{20, len(f.parts())}, []int{hosts, parts}, "they have the clock after")
}

// What a version wrote that doesn't say which clock it has is continued.
func TestDocumentsWithoutAClock(t *testing.T) {
	for _, of := range []string{"head", "part-", ""} {
		s, m, now := newStore(), memoryOf(20), noon
		require.NoError(t, (&handover.Publisher{Store: s, Key: "/lab"}).Publish(t.Context(), 7, encode(t, &m, noon)))
		for key, e := range s.entries {
			if !strings.Contains(key, of) {
				continue
			}
			var document map[string]any
			require.NoError(t, handover.UnpackWithin(e.Value, 1<<20, &document))
			require.Contains(t, document, "clock")
			delete(document, "clock")
			var err error
			e.Value, err = handover.Pack(document)
			require.NoError(t, err)
			s.entries[key] = e
		}
		got, missing, err := follow(t, s, &now).Memory(now)
		require.NoError(t, err)
		require.Zero(t, missing, of)
		require.Contains(t, got.Rules.Hosts, snapshot.Hostname("gpu-0019"), of)
	}
}
