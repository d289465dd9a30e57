package contents_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/snapshot"
)

// Few keys are looked through and many are indexed: both find the same.
func TestIndex(t *testing.T) {
	var b contents.Index[snapshot.DeviceIndex, string]
	for _, n := range []snapshot.DeviceIndex{0, 1, 15, 16, 17, 18, 40, 2} { // also fewer after more
		for i := range n {
			require.Empty(t, b.Get(100-i), "added before")
			b.Set(100-i, "another")
			b.Set(100-i, i.String())
		}
		for i := range n {
			require.Equal(t, i.String(), b.Get(100-i), "%d of %d", i, n)
		}
		require.Empty(t, b.Get(100-n), "one more than %d", n)
		b.Clear()
	}
	require.Empty(t, b.Get(100))
}
