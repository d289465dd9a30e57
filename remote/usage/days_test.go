package usage_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/usage"
)

// days are what users had on one day, in seconds.
func days(attached map[string]int64) usage.Days {
	d := make(usage.Days)
	for user, seconds := range attached {
		d.Add(user, "2026-11-02", &usage.Amounts{Attached: seconds})
	}
	return d
}

func TestLargest(t *testing.T) {
	for _, test := range []struct {
		name string
		has  map[string]int64
		n    int
		keys []string
		want map[string]int64
	}{
		{"nothing", nil, 2, nil, map[string]int64{}},
		{"few", map[string]int64{"a": 1, "b": 2}, 2, []string{"b", "a"}, map[string]int64{"a": 1, "b": 2}},
		{"many", map[string]int64{"a": 1, "b": 2, "c": 3}, 1, []string{"c", usage.Others}, map[string]int64{"c": 3, usage.Others: 3}},
		{"others are last", map[string]int64{"a": 1, usage.Others: 9}, 2, []string{"a", usage.Others}, map[string]int64{"a": 1, usage.Others: 9}},
		{"others grow", map[string]int64{"a": 1, "b": 2, usage.Others: 9}, 1, []string{"b", usage.Others}, map[string]int64{"b": 2, usage.Others: 10}},
	} {
		keys, largest := days(test.has).Largest(test.n)
		require.Equal(t, test.keys, keys, test.name)
		require.Equal(t, days(test.want), largest, test.name)
	}
}

// What is by day is of the rows of a document, whatever these become.
func TestDaysOfADocument(t *testing.T) {
	report := func() *usage.Report {
		r := sums(usage.ByUser, row("alice", 3600, 0), row("bob", 3600, 3600))
		r.Days = days(map[string]int64{"alice": 3600, "bob": 1800, usage.Others: 60})
		return r
	}
	d := report()
	d.Groups(func(user string) []string { return map[string][]string{"alice": {"x", "y"}, "bob": {"y"}}[user] })
	require.Equal(t, days(map[string]int64{"x": 3600, "y": 5400, usage.Others: 60}), d.Days)
	for but, want := range map[string]map[string]int64{
		"bob": {"bob": 1800, usage.OtherUsers: 3600, usage.Others: 60}, "": {usage.OtherUsers: 5400, usage.Others: 60},
	} {
		kept := report()
		d := new(*kept)
		d.HideUsers(but)
		require.Equal(t, days(want), d.Days, but)
		require.Equal(t, report().Days, kept.Days, "others have it too")
	}
	byDay := sums(usage.ByDay, row("2026-11-02", 3600, 0))
	require.Equal(t, int64(3600), byDay.Days[usage.AllGPUs]["2026-11-02"].Attached)
}
