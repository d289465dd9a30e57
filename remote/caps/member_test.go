package caps

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/snapshot"
)

// fixed is a Store with one value under each key.
type fixed []byte

func (f fixed) Get(_ context.Context, key string) (*etcd.Entry, error) {
	return &etcd.Entry{Key: key, Value: f, Modified: 5}, nil
}
func (fixed) GetAll(context.Context, ...string) ([]*etcd.Entry, error)   { return nil, nil }
func (fixed) Keys(context.Context, string) ([]etcd.Entry, error)         { return nil, nil }
func (fixed) Write(context.Context, string, uint64, ...etcd.Entry) error { return nil }

func TestADecisionThatCanNotBeReadStaysAnError(t *testing.T) {
	m := NewMember(MemberOptions{Store: fixed("garbage"), Key: "/k", Epoch: func() uint64 { return 1 }, Clock: func() time.Duration { return time.Hour }})
	require.Error(t, m.read(t.Context()))
	require.Error(t, m.read(t.Context()), "it is still garbage, and no cap is applied")
}

// TestALateWriteOfHoldings: a part that an earlier write replaces, which is carried out late, is written again within
// a minute, so that a judge elected meanwhile can read the holdings.
func TestALateWriteOfHoldings(t *testing.T) {
	store, now := &shelf{entries: make(map[string]etcd.Entry)}, time.Hour
	judging, leading := store.set(election.LeaderKey(JudgeKey("/k")), nil), store.set(guardOf(0), nil)
	clock := func() time.Duration { return now }
	member := NewMember(MemberOptions{
		Store: store, Key: "/k", Guard: guardOf(0), Epoch: func() uint64 { return leading }, Clock: clock,
		Order: func() map[snapshot.Hostname]int { return nil }, Every: time.Second,
	})
	part := partKey(holdingsKey("/k", 0), 0)
	publish := func(words string) {
		member.Publish(devicesOf(t, words))
		require.NoError(t, member.write(t.Context()))
	}
	publish("a:1")
	late := store.entries[part].Value
	publish("a:1 b:2")
	store.set(part, late)
	judge := NewJudge(JudgeOptions{
		Store: store, Key: "/k", Shards: 1, Guard: guardOf, Clock: clock,
		Hosts: func(int) int { return 1 },
		Rules: func() holdings.Rules { return rulesOf(1) },
		Epoch: func() uint64 { return judging },
	})
	for range 59 {
		now += time.Second
		modified := store.entries[part].Modified
		publish("a:1 b:2")
		require.Equal(t, modified, store.entries[part].Modified, "what has not changed is written now and then only")
		require.Equal(t, []int{0}, judge.step(t.Context()).Missing)
	}
	now += time.Second
	publish("a:1 b:2")
	require.Empty(t, judge.step(t.Context()).Missing)
}
