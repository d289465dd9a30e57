package host

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An answer is shared for its age, unless something changed after it was asked for.
func TestRecentAnswers(t *testing.T) {
	var r recent[int]
	asked := 0
	get := func(age time.Duration, during func()) int {
		value, err := r.get(age, func() (int, error) {
			asked++
			during()
			return asked, nil
		})
		require.NoError(t, err)
		return value
	}
	nothing := func() {}
	require.Equal(t, 1, get(time.Hour, nothing))
	require.Equal(t, 1, get(time.Hour, nothing))
	require.Equal(t, 2, get(0, nothing))
	r.outdated.Store(true)
	require.Equal(t, 3, get(time.Hour, func() { r.outdated.Store(true) }), "it changed while it was asked for")
	require.Equal(t, 4, get(time.Hour, nothing))
	require.Equal(t, 4, get(time.Hour, nothing))
}
