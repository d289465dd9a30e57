package shards_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/shards"
)

// The shard of a host and the order of controllers are the same in all versions, or two of them
// would judge the same host.
func TestPinned(t *testing.T) {
	var of []int
	for i := range 12 {
		of = append(of, shards.Of(fmt.Sprintf("gpu-%02d", i), 8))
	}
	require.Equal(t, []int{1, 3, 3, 0, 7, 2, 7, 7, 6, 4, 3, 4}, of)
	require.Equal(t, []string{"b", "d", "a", "c"}, shards.Ranking(3, []string{"a", "b", "c", "d"}))
}

func TestHostsAreSpread(t *testing.T) {
	for _, count := range []int{1, 2, 8, shards.MaxCount} {
		hosts := make([]int, count)
		for i := range 10_000 {
			hosts[shards.Of(fmt.Sprintf("gpu-%05d.lab.example.org", i), count)]++
		}
		for _, n := range hosts {
			require.InDelta(t, 10_000/count, n, 6*sqrt(10_000/float64(count)), "%d shards", count)
		}
	}
}

func sqrt(x float64) float64 {
	y := x
	for range 50 {
		y = (y + x/y) / 2
	}
	return y
}

func TestRankingMovesOnlyWhatHasTo(t *testing.T) {
	const shardCount = shards.MaxCount
	ids := []string{"a", "b", "c", "d", "e"}
	first := make(map[string]int)
	for shard := range shardCount {
		all := shards.Ranking(shard, ids)
		require.ElementsMatch(t, ids, all)
		first[all[0]]++
		slices.Reverse(ids)
		require.Equal(t, all, shards.Ranking(shard, ids), "the order in which they are seen doesn't matter")
		for _, gone := range ids {
			left := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == gone })
			want := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return id == gone })
			require.Equal(t, want, shards.Ranking(shard, left))
		}
	}
	for id, n := range first {
		require.InDelta(t, shardCount/len(ids), n, 10, id)
	}
	require.Len(t, first, len(ids))
}
