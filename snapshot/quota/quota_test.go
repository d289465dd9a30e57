package quota_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/quota"
)

// TestTurns: accounts take turns, however many requests each has.
func TestTurns(t *testing.T) {
	turns := quota.Turns[int]{Most: 3}
	release, err := turns.Take(t.Context(), 1)
	require.NoError(t, err)
	order := make(chan int, 10)
	wait := func(ctx context.Context, account int) {
		before := turns.Waiting()
		go func() {
			if release, err := turns.Take(ctx, account); err == nil {
				order <- account
				release()
			}
		}()
		require.Eventually(t, func() bool { return turns.Waiting() > before }, 30*time.Second, time.Millisecond)
	}
	gone, cancel := context.WithCancel(t.Context())
	wait(t.Context(), 1)
	wait(t.Context(), 1)
	wait(gone, 3)
	wait(t.Context(), 1)
	wait(t.Context(), 2)
	_, err = turns.Take(t.Context(), 1)
	require.ErrorIs(t, err, quota.ErrBusy)
	cancel()
	require.Eventually(t, func() bool { return turns.Waiting() == 4 }, 30*time.Second, time.Millisecond)
	release()
	for _, want := range []int{1, 2, 1, 1} {
		require.Equal(t, want, <-order)
	}
	release, err = turns.Take(t.Context(), 4)
	require.NoError(t, err)
	release()
	require.Zero(t, turns.Waiting())
}

func TestFair(t *testing.T) {
	for _, tt := range []struct {
		sizes []int
		limit int
		want  int
	}{
		{nil, 5, math.MaxInt},
		{[]int{3, 2}, 5, math.MaxInt},
		{[]int{9, 2}, 5, 3},
		{[]int{9, 9, 1}, 7, 3},
		{[]int{9, 9, 9}, 2, 0},
	} {
		require.Equal(t, tt.want, quota.Fair(tt.sizes, tt.limit), "%v", tt)
	}
}

// TestLeaves: however many accounts have all that they may, another one may have something.
func TestLeaves(t *testing.T) {
	const most = 1_000_000
	all := 0
	for range 40 {
		own := 0
		for quota.Leaves(own+100, all, most) {
			own, all = own+100, all+100
		}
		require.Positive(t, own)
	}
	require.Less(t, all, most)
}
