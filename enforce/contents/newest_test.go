package contents

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestShare(t *testing.T) {
	for _, tt := range []struct {
		sizes        []int
		limit, share int
	}{
		{nil, 10, math.MaxInt},
		{[]int{10}, 10, math.MaxInt},
		{[]int{11}, 10, 10},
		{[]int{3, 100, 2}, 10, 5},
		{[]int{100, 100, 1}, 11, 5},
		{[]int{1, 1, 1, 1}, 2, 0},
		{[]int{4, 4, 2}, 10, math.MaxInt},
	} {
		share := fairLimit(tt.sizes, tt.limit)
		require.Equal(t, tt.share, share, "%v", tt.sizes)
		left := 0
		for _, size := range tt.sizes {
			left += min(size, share)
		}
		require.LessOrEqual(t, left, tt.limit)
	}
}

func TestNewest(t *testing.T) {
	at := map[string]int{"a1": 1, "a2": 2, "a3": 3, "a4": 3, "b1": 9}
	since := func(key string) time.Time { return time.Unix(int64(at[key]), 0) }
	groups := map[string][]string{"a": {"a4", "a2", "a3", "a1"}, "b": {"b1"}}

	require.Empty(t, NewestBeyond(groups, 5, since))
	require.Equal(t, []string{"a4"}, NewestBeyond(groups, 4, since), "of the same age, the later by name")
	require.Equal(t, []string{"a3", "a4"}, NewestBeyond(groups, 3, since), "b keeps the newest of all")
	require.ElementsMatch(t, []string{"a1", "a2", "a3", "a4", "b1"}, NewestBeyond(groups, 1, since), "less than one for each")
}

func TestRoom(t *testing.T) {
	r := Room{Max: 3, MaxEach: 2}
	require.False(t, r.Full("a", "alice"))
	r.Add("a", "alice")
	require.False(t, r.Full("a", "alice"))
	r.Add("a", "alice")
	require.True(t, r.Full("a", "alice"))
	require.False(t, r.Full("a", "bob"), "another user there")
	require.False(t, r.Full("b", "alice"), "on another host")
	r.Add("a", "bob")
	require.True(t, r.Full("a", "bob"), "the host has no room for any user")
	require.True(t, r.Full("a", "carol"))
	require.False(t, r.Full("b", "bob"))
}
