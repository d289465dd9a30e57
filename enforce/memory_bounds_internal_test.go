package enforce

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFairShare(t *testing.T) {
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
		share := fairShare(append([]int(nil), tt.sizes...), tt.limit)
		require.Equal(t, tt.share, share, "%v", tt.sizes)
		left := 0
		for _, size := range tt.sizes {
			left += min(size, share)
		}
		require.LessOrEqual(t, left, tt.limit)
	}
}
