package snapshot_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

func TestParseDate(t *testing.T) {
	d, err := snapshot.ParseDate("09/11/2026 07:05:03")
	require.NoError(t, err)
	require.Equal(t, "09/11/2026 07:05:03", d.String())
	require.Equal(t, time.Date(2026, time.November, 9, 7, 5, 3, 0, time.UTC), d.In(time.UTC), "the day comes first")
	require.False(t, d.IsZero())
	require.True(t, snapshot.Date{}.IsZero())
}

func TestParseDateRefuses(t *testing.T) {
	for _, text := range []string{
		"", "now", "2026-11-20 21:10:32", "11/20/2026 21:10:32", "31/02/2026 00:00:00", "20/11/2026", "20/11/26 21:10:32",
		"20/11/2026 24:00:00", "20/11/2026 21:60:00", "20/11/2026 21:10:60", "20/11/2026 21:10:32.5", "20/11/2026 9:10:32",
		"1/11/2026 21:10:32", "20/11/2026 21:10:32 ", "20/11/2026 21:10:32Z", "-1/11/2026 21:10:32",
	} {
		_, err := snapshot.ParseDate(text)
		require.Error(t, err, text)
	}
}

// A date is the time on a wall clock in any zone.
func TestDatesAreOfTheWallClock(t *testing.T) {
	haifa := time.FixedZone("east", 2*3600)
	at := time.Date(2026, time.November, 20, 23, 30, 0, 999, haifa)
	d := snapshot.DateOf(at)
	require.Equal(t, "20/11/2026 23:30:00", d.String())
	require.Equal(t, at.Truncate(time.Second).Unix(), d.In(haifa).Unix())
	parsed, err := snapshot.ParseDate(d.String())
	require.NoError(t, err)
	require.Equal(t, d, parsed)
}

func TestDatesCompare(t *testing.T) {
	parse := func(text string) snapshot.Date {
		d, err := snapshot.ParseDate(text)
		require.NoError(t, err)
		return d
	}
	before, after := parse("31/12/2025 23:59:59"), parse("01/01/2026 00:00:00")
	require.Negative(t, before.Compare(after))
	require.Positive(t, after.Compare(before))
	require.Zero(t, after.Compare(parse("01/01/2026 00:00:00")))
}

func FuzzParseDate(f *testing.F) {
	for _, text := range []string{"09/11/2026 07:05:03", "20/11/2026 21:10:32.5", "31/02/2026 00:00:00", "01/01/0001 00:00:00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := snapshot.ParseDate(text); err == nil {
			require.Equal(t, text, d.String())
		}
	})
}
