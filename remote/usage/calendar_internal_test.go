package usage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A clock that is set moves the hours in which time counts, and not how much it is.
func TestASetClock(t *testing.T) {
	last := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name    string
		wall    time.Duration // by how much the wall clock went forward
		elapsed time.Duration
		from    time.Duration // since last
		seconds int64
	}{
		{"not set", 10 * time.Second, 10 * time.Second, 0, 10},
		{"a bit fast", 10*time.Second + 900*time.Millisecond, 10 * time.Second, 0, 10},
		{"a bit slow", 9*time.Second + 100*time.Millisecond, 10 * time.Second, 0, 9},
		{"set forward", 3*time.Hour + 10*time.Second, 10 * time.Second, 3 * time.Hour, 10},
		{"set back", -3 * time.Hour, 10 * time.Second, -3*time.Hour - 10*time.Second, 10},
		{"suspended, which looks the same", 8 * time.Hour, time.Second, 8*time.Hour - time.Second, 1},
		{"no monotonic clock", -time.Hour, -time.Hour, 0, -3600},
	} {
		from, to := secondsBetween(last, last.Add(test.wall), test.elapsed)
		require.Equal(t, last.Add(test.from).Unix(), from, test.name)
		require.Equal(t, from+test.seconds, to, test.name)
	}
}
