package caps

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// counting counts requests, and the parts that are read.
type counting struct {
	*shelf
	requests, parts int
}

func (c *counting) GetAll(ctx context.Context, keys ...string) ([]*etcd.Entry, error) {
	c.requests++
	for _, key := range keys {
		if strings.Contains(key, "/part-") {
			c.parts++
		}
	}
	return c.shelf.GetAll(ctx, keys...)
}

func (c *counting) Get(ctx context.Context, key string) (*etcd.Entry, error) {
	c.requests++
	return c.shelf.Get(ctx, key)
}

func (c *counting) Keys(ctx context.Context, prefix string) ([]etcd.Entry, error) {
	c.requests++
	return c.shelf.Keys(ctx, prefix)
}

func (c *counting) Write(ctx context.Context, guard string, created uint64, entries ...etcd.Entry) error {
	c.requests++
	return c.shelf.Write(ctx, guard, created, entries...)
}

// TestHoldingsThatDoNotCount: the judge says which, and reads them again only when they were written again.
func TestHoldingsThatDoNotCount(t *testing.T) {
	store := &counting{shelf: &shelf{entries: make(map[string]etcd.Entry)}}
	judging := store.set(election.LeaderKey(JudgeKey("/k")), nil)
	leading := store.set(guardOf(0), nil)
	judge := NewJudge(JudgeOptions{
		Store: store, Key: "/k", Shards: 2, Guard: guardOf, Clock: func() time.Duration { return time.Hour },
		Hosts: func(shard int) int { return 1 - shard },
		Rules: func() holdings.Rules { return rulesOf(2) },
		Epoch: func() uint64 { return judging },
	})
	number := uint64(0)
	write := func(left int, change func(top, part []byte)) {
		number++
		h := &document{head{Version: stamp{Epoch: leading, Number: number}, Left: left}, devicesOf(t, "a:1 b:2 c:3")}
		top, parts, err := h.encode()
		require.NoError(t, err)
		change(top, parts[0])
		store.set(partKey(holdingsKey("/k", 0), 0), parts[0])
		store.set(holdingsKey("/k", 0), top)
	}
	for _, row := range []struct {
		what   string
		left   int
		change func(top, part []byte)
		want   string // "" for nothing
	}{
		{"damaged", 0, func(_, part []byte) { part[0]++ }, "shard 0: invalid holdings"},
		{"of another version", 0, func(top, _ []byte) { copy(top, strings.Replace(string(top), "caps/1", "caps/2", 1)) }, "shard 0: invalid holdings"},
		{"in order", 0, func(_, _ []byte) {}, ""},
		{"without some users", 2, func(_, _ []byte) {}, "shard 0: 2 users hold too much to be counted, so no cap applies to what they have there"},
		{"in order again", 0, func(_, _ []byte) {}, ""},
		{"damaged, with earlier ones that count still", 0, func(_, part []byte) { part[0]++ }, ""},
	} {
		write(row.left, row.change)
		store.parts = 0
		for range 8 {
			status := judge.step(t.Context())
			if row.want == "" {
				require.NoError(t, status.Err, row.what)
			} else {
				require.ErrorContains(t, status.Err, row.want, row.what)
			}
		}
		require.LessOrEqual(t, store.parts, 1, row.what)
	}
}

// TestFewRequests: only what is new takes more requests the more shards there are, however far etcd is away.
func TestFewRequests(t *testing.T) {
	const shards = 64
	store, now := &counting{shelf: &shelf{entries: make(map[string]etcd.Entry)}}, time.Hour
	judging := store.set(election.LeaderKey(JudgeKey("/k")), nil)
	judge := NewJudge(JudgeOptions{
		Store: store, Key: "/k", Shards: shards, Guard: guardOf, Clock: func() time.Duration { return now },
		Hosts: func(int) int { return 1 },
		Rules: func() holdings.Rules { return rulesOf(2) },
		Epoch: func() uint64 { return judging },
	})
	for shard := range shards {
		h := &document{head{Version: stamp{Epoch: store.set(guardOf(shard), nil), Number: 1}}, devicesOf(t, "a:1")}
		top, parts, err := h.encode()
		require.NoError(t, err)
		store.set(partKey(holdingsKey("/k", shard), 0), parts[0])
		store.set(holdingsKey("/k", shard), top)
	}
	for _, row := range []struct {
		what     string
		after    time.Duration
		requests int
	}{
		{"all is new", 0, 3 + shards/partsAtOnce},
		{"nothing is", askEvery, 2},
		{"decisions are repeated", repeatEvery, 3},
	} {
		now += row.after
		store.requests = 0
		status := judge.step(t.Context())
		require.NoError(t, status.Err, row.what)
		require.Empty(t, status.Missing, row.what)
		require.Equal(t, row.requests, store.requests, row.what)
	}
	for shard := range shards {
		d, err := decodeDecision(store.entries[decisionKey("/k", shard)].Value)
		require.NoError(t, err)
		require.Equal(t, 63, d.Over[0].Elsewhere.Count)
	}
}

func TestFitting(t *testing.T) {
	for _, row := range []struct {
		sizes []int
		want  int
	}{
		{nil, 0},
		{[]int{1, 2, 3}, 3},
		{[]int{2 * maxPart, 1}, 1},
		{[]int{maxPart, 0, 1}, 2},
		{[]int{maxPart / 2, maxPart / 2, 1}, 2},
		{[]int{1, 2 * maxPart}, 1},
		{make([]int, maxKeys+1), maxKeys},
	} {
		var entries []etcd.Entry
		for _, size := range row.sizes {
			entries = append(entries, etcd.Entry{Value: make([]byte, size)})
		}
		require.Equal(t, row.want, fitting(entries), row.sizes)
	}
}
