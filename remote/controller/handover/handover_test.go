package handover_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/controller/handover"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// store is an etcd in memory.
type store struct {
	revision uint64
	epoch    uint64 // of the key of the leader
	entries  map[string]etcd.Entry
	requests []int // the entries of each
	most     int   // requests are carried out, and no more; -1 for all
	fails    error
	stalls   bool        // writes time out, and
	late     func() bool // carries the last one of them out
}

func newStore() *store { return &store{epoch: 7, most: -1, entries: make(map[string]etcd.Entry)} }

func (s *store) Get(_ context.Context, key string) (*etcd.Entry, error) {
	e, ok := s.entries[key]
	if !ok || s.fails != nil {
		return nil, s.fails
	}
	return &e, nil
}

func (s *store) WriteAfter(_ context.Context, guard string, created uint64, key string, modified uint64, entries ...etcd.Entry) error {
	if s.stalls {
		s.late = func() bool { return s.write(guard, created, key, modified, entries...) == nil }
		return context.DeadlineExceeded
	}
	return s.write(guard, created, key, modified, entries...)
}

func (s *store) write(guard string, created uint64, key string, modified uint64, entries ...etcd.Entry) error {
	if s.fails != nil {
		return s.fails
	}
	if guard != election.LeaderKey("/lab") || created != s.epoch || s.entries[key].Modified != modified {
		return etcd.ErrConflict
	}
	if s.most == len(s.requests) {
		return context.DeadlineExceeded
	}
	s.revision++
	s.requests = append(s.requests, len(entries))
	for _, e := range entries {
		if delete(s.entries, e.Key); e.Value != nil {
			s.entries[e.Key] = etcd.Entry{Key: e.Key, Value: e.Value, Modified: s.revision}
		}
	}
	return nil
}

// memoryOf is what a controller may know of hosts.
func memoryOf(hosts int) controller.FleetMemory {
	m := controller.FleetMemory{Rules: enforce.Memory{
		Time: noon, Findings: map[string]enforce.KnownFinding{}, Present: map[string]enforce.Presence{}, Idle: map[string]time.Time{},
		Released: map[snapshot.AttachmentKey]bool{}, Stuck: map[snapshot.ProcessKey]string{}, LeftAlone: map[snapshot.ProcessKey]time.Time{},
		Hosts: map[snapshot.Hostname]enforce.KnownHost{},
	}}
	m.Machines.Twins, m.Guards, m.Mail.Users = map[string][]string{}, controller.GuardMemory{}, map[snapshot.Username]*mail.Person{}
	for i := range hosts {
		host := snapshot.Hostname(fmt.Sprintf("gpu-%04d", i))
		key := fmt.Sprintf("env-devices/%s/7/100", host)
		m.Rules.Findings[key] = enforce.KnownFinding{Host: host, Decision: enforce.DecisionWait, Notified: enforce.NotifiedOfWarning}
		m.Rules.Present[key] = enforce.Presence{Since: noon.Add(-time.Minute), Cycles: 6}
		m.Rules.Present[fmt.Sprintf("process/%s/7/100", host)] = enforce.Presence{Since: noon.Add(-time.Minute), Cycles: 6}
		m.Rules.Idle[fmt.Sprintf("%s/alice/1/0", host)] = noon.Add(-time.Hour)
		m.Rules.Released[snapshot.AttachmentKey{Host: host, Device: "1", EID: "2"}] = true
		m.Rules.Stuck[snapshot.ProcessKey{Host: host, PID: 8, Start: 5}] = "it survived"
		m.Rules.LeftAlone[snapshot.ProcessKey{Host: host, PID: 9, Start: 5}] = noon.Add(time.Minute)
		m.Rules.Hosts[host] = enforce.KnownHost{Answered: true}
		m.Machines.Twins[string(host)] = []string{string(host) + "-twin"}
		m.Guards[host] = controller.GuardSeen{Epoch: "e", Seq: 3, ID: 4}
		m.Messages.Spend(host, 1000, 1, controller.Share{}, noon)
	}
	m.Rules.Findings["max-devices-per-user/alice"] = enforce.KnownFinding{Decision: enforce.DecisionAct}
	m.Rules.Present["max-devices-per-user/alice"] = enforce.Presence{Since: noon.Add(-time.Hour), Cycles: 360}
	m.Mail.Users["alice"] = &mail.Person{Host: "gpu-0000", Since: noon}
	m.Operator.Hold = &operator.OnHold{Since: noon.Add(-time.Minute), By: "ann", Reason: "a test"}
	m.Operator.Exemptions = policy.ExemptionList{{
		Who: policy.Who{User: "alice"}, Reason: "a test", By: "ann", Created: noon.Add(-time.Minute), Until: noon.Add(time.Hour),
	}}
	return m
}

func encode(t *testing.T, m *controller.FleetMemory, now time.Time) *handover.Document {
	t.Helper()
	d, err := handover.Encode(m, now)
	require.NoError(t, err)
	return d
}

// follow is a standby that has polled once; it looks at a time that the test lets pass.
func follow(t *testing.T, s *store, now *time.Time) *handover.Follower {
	f := &handover.Follower{Store: s, Key: "/lab", Now: func() time.Time { return *now }, Clock: func() time.Duration { return now.Sub(noon) }}
	require.NoError(t, f.Poll(t.Context()))
	return f
}

func TestTheNextLeaderKnowsAll(t *testing.T) {
	for _, hosts := range []int{0, 1, 2, 1000} {
		s, now := newStore(), noon
		m := memoryOf(hosts)
		p := handover.Publisher{Store: s, Key: "/lab"}
		require.NoError(t, p.Publish(t.Context(), 7, encode(t, &m, noon)))
		f := follow(t, s, &now)
		now = noon.Add(10 * time.Second)
		got, found, err := f.Memory(now)
		require.NoError(t, err)
		require.True(t, found)
		require.True(t, got.Rules.Resumed)
		got.Rules.Resumed = false
		want, err := enforceJSON(&m)
		require.NoError(t, err)
		have, err := enforceJSON(&got)
		require.NoError(t, err)
		require.JSONEq(t, want, have)
		require.Equal(t, m.Operator, got.Operator)
	}
}

// What stays the same isn't written again: the head alone is.
func TestOnlyChangesAreWritten(t *testing.T) {
	s, ctx := newStore(), t.Context()
	m := memoryOf(100)
	p := handover.Publisher{Store: s, Key: "/lab"}
	publish := func(now time.Time) int {
		t.Helper()
		s.requests = nil
		require.NoError(t, p.Publish(ctx, s.epoch, encode(t, &m, now)))
		sum := 0
		for _, n := range s.requests {
			sum += n
		}
		return sum
	}
	require.Equal(t, 2, publish(noon))
	require.Equal(t, 1, publish(noon.Add(time.Second)), "the head alone")
	m.Rules.Stuck[snapshot.ProcessKey{Host: "gpu-0001", PID: 10, Start: 5}] = "it survived"
	require.Equal(t, 2, publish(noon.Add(2*time.Second)))
	key := "env-devices/gpu-0001/7/100"
	m.Rules.Present[key] = enforce.Presence{Since: noon.Add(-time.Minute), Cycles: 7}
	require.Equal(t, 2, publish(noon.Add(3*time.Second)), "rules may wait for some cycles")
	m.Rules.Present["max-devices-per-user/alice"] = enforce.Presence{Since: noon.Add(-time.Hour), Cycles: 361}
	require.Equal(t, 1, publish(noon.Add(4*time.Second)), "none waits for so many")
	for key := range m.Rules.Present {
		if strings.Contains(key, "gpu-0001") {
			delete(m.Rules.Present, key)
		}
	}
	require.Equal(t, 2, publish(noon.Add(5*time.Second)))

	s.fails = errors.New("no answer")
	require.Error(t, p.Publish(ctx, 7, encode(t, &m, noon.Add(6*time.Second))))
	s.fails = nil
	require.Equal(t, 1, publish(noon.Add(6*time.Second)), "nothing was written")
	restored := maps.Clone(s.entries)
	require.Equal(t, 1, publish(noon.Add(7*time.Second)))
	s.entries = restored
	require.Equal(t, 2, publish(noon.Add(8*time.Second)), "it isn't known what else was lost")
	s.epoch = 9
	require.ErrorIs(t, p.Publish(ctx, 7, encode(t, &m, noon.Add(9*time.Second))), etcd.ErrConflict)
	require.Equal(t, 2, publish(noon.Add(9*time.Second)), "another leader may have written meanwhile")
}

// A memory that is missing, damaged or too long for etcd is a fresh start; what operators asked for is there.
func TestAMissingMemory(t *testing.T) {
	const key = "/lab/memory/all"
	random := rand.New(rand.NewPCG(1, 2))
	for name, change := range map[string]func(*store, *controller.FleetMemory){
		"missing": func(s *store, _ *controller.FleetMemory) { delete(s.entries, key) },
		"damaged": func(s *store, _ *controller.FleetMemory) {
			s.entries[key] = etcd.Entry{Key: key, Value: []byte("\x1f\x8b damaged"), Modified: 99}
		},
		"too long": func(s *store, m *controller.FleetMemory) {
			text := make([]byte, 2<<20)
			for i := range text {
				text[i] = byte('!' + random.IntN(90))
			}
			m.Rules.Stuck[snapshot.ProcessKey{Host: "gpu-0001", PID: 10, Start: 5}] = string(text)
			d := encode(t, m, noon.Add(time.Second))
			require.True(t, d.TooLong())
			require.NoError(t, (&handover.Publisher{Store: s, Key: "/lab"}).Publish(t.Context(), 7, d))
			require.NotContains(t, s.entries, key)
		},
	} {
		s, m, now := newStore(), memoryOf(200), noon
		require.NoError(t, (&handover.Publisher{Store: s, Key: "/lab"}).Publish(t.Context(), 7, encode(t, &m, noon)))
		change(s, &m)
		got, found, err := follow(t, s, &now).Memory(noon)
		require.NoError(t, err, name)
		require.False(t, found, name)
		require.Empty(t, got.Rules.Findings, name)
		require.NotNil(t, got.Operator.Hold, name)
	}
}

func TestWhatCantBeContinued(t *testing.T) {
	now := noon
	_, _, err := follow(t, newStore(), &now).Memory(noon)
	require.ErrorIs(t, err, handover.ErrNone)
	s, m := newStore(), memoryOf(2)
	p := handover.Publisher{Store: s, Key: "/lab"}
	require.NoError(t, p.Publish(t.Context(), 7, encode(t, &m, noon)))
	for name, at := range map[string]time.Time{"long ago": noon.Add(2 * time.Hour), "in the future": noon.Add(-time.Minute)} {
		_, _, err := follow(t, s, &at).Memory(at)
		require.ErrorContains(t, err, "too long ago or in the future", name)
	}
	f := follow(t, s, &now)
	for _, value := range []string{"", "x", "\x1f\x8b"} {
		s.entries["/lab/memory/head"] = etcd.Entry{Key: "/lab/memory/head", Value: []byte(value), Modified: 99}
		_, _, err = follow(t, s, &now).Memory(noon)
		require.ErrorContains(t, err, "damaged", "%q", value)
	}
	s.fails = errors.New("no answer")
	require.Error(t, f.Poll(t.Context()))
	_, _, err = f.Memory(noon)
	require.NoError(t, err, "what was read before")
}

// The clocks of two controllers differ: what was a minute ago for one is so for the other.
func TestClocksThatDiffer(t *testing.T) {
	const key = "env-devices/gpu-0000/7/100"
	for name, row := range map[string]struct {
		ahead time.Duration // the clock of the standby
		want  time.Duration // by how much times are corrected
	}{
		"together": {0, 0}, "a little late": {time.Second, 0}, "ahead": {10 * time.Minute, 10 * time.Minute}, "behind": {-10 * time.Minute, -10 * time.Minute},
		"hours ahead": {2 * time.Hour, 2 * time.Hour}, "hours behind": {-2 * time.Hour, -2 * time.Hour},
	} {
		s, m := newStore(), memoryOf(1)
		p := handover.Publisher{Store: s, Key: "/lab"}
		require.NoError(t, p.Publish(t.Context(), 7, encode(t, &m, noon.Add(-time.Hour/2))))
		now := noon.Add(row.ahead)
		f := follow(t, s, &now)
		require.NoError(t, p.Publish(t.Context(), 7, encode(t, &m, noon)))
		now = now.Add(time.Second / 2)
		require.NoError(t, f.Poll(t.Context()))
		got, _, err := f.Memory(now)
		require.NoError(t, err, name)
		require.WithinDuration(t, noon.Add(-time.Minute).Add(row.want), got.Rules.Present[key].Since, time.Second, name)
		require.WithinDuration(t, noon.Add(row.want), got.Rules.Time, time.Second, name)
		require.WithinDuration(t, noon.Add(time.Hour).Add(row.want), got.Operator.Exemptions[0].Until, time.Second, name)
		require.WithinDuration(t, noon.Add(-time.Minute).Add(row.want), got.Operator.Hold.Since, time.Second, name)
		require.WithinDuration(t, noon.Add(time.Minute).Add(row.want), got.Rules.LeftAlone[snapshot.ProcessKey{Host: "gpu-0000", PID: 9, Start: 5}], time.Second, name)
	}
}

// The clock of the standby is set, an hour forward or back, before it takes over: what began a
// minute ago began a minute ago, or a policy would end at once what it gives an hour.
func TestAClockThatIsSet(t *testing.T) {
	const key = "env-devices/gpu-0000/7/100"
	for _, set := range []time.Duration{59 * time.Minute, -59 * time.Minute, 5 * time.Hour, time.Second} {
		for _, ahead := range []time.Duration{0, 10 * time.Minute} {
			for _, polls := range []bool{true, false} { // after it is set
				s, m := newStore(), memoryOf(1) // of what began a minute before noon
				p := handover.Publisher{Store: s, Key: "/lab"}
				now, clock := noon.Add(ahead-time.Second), time.Duration(0)
				f := &handover.Follower{Store: s, Key: "/lab", Now: func() time.Time { return now }, Clock: func() time.Duration { return clock }}
				require.NoError(t, f.Poll(t.Context()))
				pass := func(d time.Duration) { now, clock = now.Add(d), clock+d }
				pass(time.Second)
				require.NoError(t, p.Publish(t.Context(), 7, encode(t, &m, noon)))
				require.NoError(t, f.Poll(t.Context()))
				pass(time.Second)
				now = now.Add(set)
				if polls {
					require.NoError(t, f.Poll(t.Context()))
				}
				pass(5 * time.Second)
				got, _, err := f.Memory(now)
				require.NoError(t, err)
				require.WithinDuration(t, now.Add(-time.Minute), got.Rules.Present[key].Since, 10*time.Second, "%s, %s ahead, polls: %t", set, ahead, polls)
				require.WithinDuration(t, now.Add(time.Hour), got.Operator.Exemptions[0].Until, 10*time.Second, "%s, %s ahead, polls: %t", set, ahead, polls)
			}
		}
	}
}

func enforceJSON(m *controller.FleetMemory) (string, error) {
	data, err := json.Marshal(m)
	return string(data), err
}

// Whatever is in etcd: there is a memory or an error.
func FuzzMemory(f *testing.F) {
	m := memoryOf(1)
	d, err := handover.Encode(&m, noon)
	if err != nil {
		f.Fatal(err)
	}
	s := newStore()
	if err := (&handover.Publisher{Store: s, Key: "/lab"}).Publish(context.Background(), 7, d); err != nil {
		f.Fatal(err)
	}
	f.Add(s.entries["/lab/memory/head"].Value, s.entries["/lab/memory/all"].Value)
	f.Fuzz(func(t *testing.T, head, memory []byte) {
		s := newStore()
		s.entries["/lab/memory/head"] = etcd.Entry{Key: "/lab/memory/head", Value: head, Modified: 1}
		s.entries["/lab/memory/all"] = etcd.Entry{Key: "/lab/memory/all", Value: memory, Modified: 1}
		now := noon
		if _, found, err := follow(t, s, &now).Memory(noon); err != nil && found {
			t.Fatal(err)
		}
	})
}
