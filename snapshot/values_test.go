package snapshot_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func TestParseDate(t *testing.T) {
	d := proctest.Try(snapshot.ParseDate("09/11/2026 07:05:03")).OK(t)
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
		require.Error(t, proctest.Try(snapshot.ParseDate(text)).Err, text)
	}
}

// A date is the time on a wall clock in any zone.
func TestDatesAreOfTheWallClock(t *testing.T) {
	haifa := time.FixedZone("east", 2*3600)
	at := time.Date(2026, time.November, 20, 23, 30, 0, 999, haifa)
	d := snapshot.DateOf(at)
	require.Equal(t, "20/11/2026 23:30:00", d.String())
	require.Equal(t, at.Truncate(time.Second).Unix(), d.In(haifa).Unix())
	require.Equal(t, d, proctest.Try(snapshot.ParseDate(d.String())).OK(t))
}

func TestDatesCompare(t *testing.T) {
	parse := func(text string) snapshot.Date {
		return proctest.Try(snapshot.ParseDate(text)).OK(t)
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

func TestParseMemory(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "44040192": 44040192, "81559mi": 81559 << 20, "007g": 7e9, "9223372036854775807": math.MaxInt64} {
		m := proctest.Try(snapshot.ParseMemory(text)).OK(t, text)
		require.True(t, m.Known(), text)
		require.Equal(t, want, m.Bytes(), text)
		require.Equal(t, text, m.String(), "written as it was read")

		upper := proctest.Try(snapshot.ParseMemory(strings.ToUpper(text))).OK(t, text)
		require.Equal(t, m, upper, "upper case is its lower case")
	}
	for _, text := range []string{"", "-4g", "4t", "9223372036854775808"} {
		m, err := snapshot.ParseMemory(text)
		require.ErrorContains(t, err, "b, k, m, g, ki, mi or gi", text)
		require.False(t, m.Known(), text)
	}
}

func TestUnknownMemoryIsNotZero(t *testing.T) {
	require.False(t, snapshot.Memory{}.Known())
	require.Empty(t, snapshot.Memory{}.String())
	require.True(t, snapshot.MiB(0).Known())
	require.NotEqual(t, snapshot.Memory{}, snapshot.MiB(0))
}

func TestMiB(t *testing.T) {
	require.Equal(t, snapshot.MustMemory("81559mi"), snapshot.MiB(81559))
}

func TestMustMemoryPanics(t *testing.T) {
	require.Panics(t, func() { snapshot.MustMemory("much") })
}

func FuzzParseMemory(f *testing.F) {
	for _, text := range []string{"4g", "81559mi", "44040192", "-1", "9223372037g", "4GI", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := snapshot.ParseMemory(text)
		if err != nil {
			require.Equal(t, snapshot.Memory{}, m)
			return
		}
		require.GreaterOrEqual(t, m.Bytes(), int64(0))
		require.Equal(t, m, proctest.Try(snapshot.ParseMemory(m.String())).OK(t))
	})
}
