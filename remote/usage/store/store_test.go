package store_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// database is one that doesn't exist yet.
type database struct {
	place   string
	options store.Options
}

// testStore runs the tests that every store passes. create returns a database of its own each time, in the zone below.
func testStore(t *testing.T, create func(t *testing.T) database) {
	for name, test := range map[string]func(*testing.T, database){
		"an empty one":          empty,
		"sums":                  sums,
		"a year":                year,
		"a reader and a writer": readerAndWriter,
		"gaps":                  gaps,
		"many users":            manyUsers,
		"old hours":             oldHours,
		"odd names":             oddNames,
		"pseudonyms":            pseudonyms,
		"hours of caps":         hoursOfCaps,
	} {
		t.Run(name, func(t *testing.T) { test(t, create(t)) })
	}
}

// zone is one in which the clocks were put back on 2026-10-25.
func zone(t testing.TB) *time.Location {
	return proctest.Try(time.LoadLocation("Europe/Berlin")).OK(t)
}

func (d database) open(t testing.TB) *store.Store { return d.with(t, store.Open) }

func (d database) openToRead(t testing.TB) *store.Store { return d.with(t, store.OpenToRead) }

func (d database) with(t testing.TB, open func(context.Context, string, store.Options) (*store.Store, error)) *store.Store {
	s := proctest.Try(open(t.Context(), d.place, d.options)).OK(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// reportOf, markOf and tidy are calls that don't fail.
func reportOf(t testing.TB, s *store.Store, q usage.Query) *usage.Report {
	return proctest.Try(s.Report(t.Context(), q)).OK(t)
}

func markOf(t *testing.T, s *store.Store) usage.Mark {
	return proctest.Try(s.Mark(t.Context())).OK(t)
}

func tidy(t testing.TB, s *store.Store, now time.Time) (early string) {
	return proctest.Try(s.Tidy(t.Context(), now)).OK(t)
}

func hoursIn(t testing.TB, s *store.Store) map[string]enforce.Hours {
	hours, _, err := s.Hours(t.Context())
	require.NoError(t, err)
	return hours
}

// entryOf is usage of some users on some hosts in the hour that begins at a moment. A seed always gives the same one.
func entryOf(hour int64, seed uint64) *usage.Entry {
	r := rand.New(rand.NewPCG(seed, 1))
	sums := make(usage.Sums)
	for range 20 {
		host, user, device := fmt.Sprintf("gpu-%d", r.IntN(3)), fmt.Sprintf("user-%d", r.IntN(5)), r.IntN(8)
		a := usage.Amounts{Attached: 1 + r.Int64N(3600), Used: r.Int64N(3600), Computing: r.Int64N(100), Idle: r.Int64N(100), Memory: r.Int64N(1 << 40)}
		a.Unknown, a.Unmeasured, a.Findings, a.Terminated, a.Detached = r.Int64N(100), r.Int64N(100), r.Int64N(3), r.Int64N(3), r.Int64N(3)
		for kind, name := range map[usage.SumKind]string{usage.OfUser: user, usage.OfHost: host, usage.OfModel: "H100", usage.OfAll: ""} {
			sums.Merge(usage.Sums{{Hour: hour, Kind: kind, Name: name}: {Amounts: a, Peak: int64(device)}})
		}
	}
	return &usage.Entry{Sums: sums, Since: hour, Mark: usage.Mark{Until: hour + 3600}}
}

func empty(t *testing.T, d database) {
	s := d.open(t)
	require.Zero(t, markOf(t, s))
	r := reportOf(t, s, usage.Query{By: usage.ByUser, Since: 0, Until: 1e9})
	require.Equal(t, []usage.ReportRow{}, r.Rows, "an empty list in JSON")
	require.Zero(t, sumOf(&r.Total))
	require.Empty(t, tidy(t, s, time.Now()))
}

// expectDays are the amounts of days in a time.
func expectDays(entries []*usage.Entry, q usage.Query, in *time.Location) usage.Days {
	days := make(usage.Days)
	for _, e := range entries {
		for key := range e.Sums {
			if sum := e.Sums[key]; key.Hour >= q.Since && key.Hour < q.Until && key.Kind == q.Kind() {
				days.Add(cmp.Or(key.Name, map[bool]string{true: usage.AllGPUs}[q.By == usage.ByDay]), time.Unix(key.Hour, 0).In(in).Format(time.DateOnly), &sum.Amounts)
			}
		}
	}
	return days
}

// expect is the sum of what entries have in a time, calculated from the entries.
func expect(entries []*usage.Entry, q usage.Query, in *time.Location) (rows map[string]usage.Sum, total usage.Sum) {
	rows = make(map[string]usage.Sum)
	for _, e := range entries {
		for key := range e.Sums {
			sum := e.Sums[key]
			if key.Hour < q.Since || key.Hour >= q.Until {
				continue
			}
			if key.Kind == usage.OfAll {
				total.Add(&sum)
			}
			name := key.Name
			if q.By == usage.ByDay {
				name = time.Unix(key.Hour, 0).In(in).Format(time.DateOnly)
			}
			if key.Kind == q.Kind() {
				row := rows[name]
				row.Add(&sum)
				rows[name] = row
			}
		}
	}
	return rows, total
}

func sumOf(r *usage.ReportRow) usage.Sum { return usage.Sum{Amounts: r.Amounts, Peak: *r.Peak} }

func check(t *testing.T, s *store.Store, entries []*usage.Entry, q usage.Query) *usage.Report {
	r := reportOf(t, s, q)
	got := make(map[string]usage.Sum)
	for _, row := range r.Rows {
		got[row.Key] = sumOf(&row)
	}
	q.Since, q.Until = r.Since.Unix(), r.Until.Unix()
	rows, total := expect(entries, q, zone(t))
	require.Equal(t, rows, got)
	require.Equal(t, total, sumOf(&r.Total))
	if !q.Days && q.By != usage.ByDay {
		require.Empty(t, r.Days)
	} else {
		require.Equal(t, expectDays(entries, q, zone(t)), r.Days)
	}
	return r
}

// sums: reports of any time have what was added, each entry once, over a day of 25 hours.
func sums(t *testing.T, d database) {
	s, in := d.open(t), zone(t)
	begin := time.Date(2026, 10, 23, 0, 0, 0, 0, in)
	var entries []*usage.Entry
	for i := range 5 * 24 {
		e := entryOf(begin.Add(time.Duration(i)*time.Hour).Unix(), uint64(i))
		entries = append(entries, e)
		require.NoError(t, s.Add(t.Context(), e))
	}
	// more of an hour that has been kept already
	late := entryOf(begin.Add(time.Hour).Unix(), 1000)
	entries = append(entries, late)
	require.NoError(t, s.Add(t.Context(), late))
	r := rand.New(rand.NewPCG(1, 1))
	for range 10 {
		since := begin.Add(time.Duration(r.IntN(140)-10) * time.Hour)
		q := usage.Query{Days: r.IntN(4) > 0, Since: since.Unix(), Until: since.Add(time.Duration(r.IntN(72)) * time.Hour).Unix()}
		for _, q.By = range []string{usage.ByUser, usage.ByHost, usage.ByModel, usage.ByDay} {
			check(t, s, entries, q)
		}
	}
	whole := check(t, s, entries, usage.Query{By: usage.ByDay, Since: begin.Unix(), Until: begin.AddDate(0, 0, 5).Unix()})
	require.Len(t, whole.Rows, 5)
	require.Equal(t, begin, whole.Begun)
}

// manyUsers: those with most have sums by day, and all others have them together, but for groups.
func manyUsers(t *testing.T, d database) {
	s, hour := d.open(t), time.Date(2026, 10, 23, 0, 0, 0, 0, zone(t)).Unix()
	sums := make(usage.Sums)
	for i := range int64(70) {
		sums[usage.SumKey{Hour: hour, Kind: usage.OfUser, Name: fmt.Sprintf("user-%02d", i)}] = usage.Sum{Amounts: usage.Amounts{Attached: 100 + i}}
	}
	require.NoError(t, s.Add(t.Context(), &usage.Entry{Sums: sums, Since: hour, Mark: usage.Mark{Until: hour + 3600}}))
	r := reportOf(t, s, usage.Query{By: usage.ByUser, Days: true, Since: hour, Until: hour + 3600})
	require.Len(t, r.Days, 65)
	require.Equal(t, int64(100+101+102+103+104+105), r.Days[usage.Others]["2026-10-23"].Attached)
	require.Equal(t, int64(106), r.Days["user-06"]["2026-10-23"].Attached)
	r = reportOf(t, s, usage.Query{By: usage.ByGroup, Days: true, Since: hour, Until: hour + 3600})
	require.Len(t, r.Days, 70)
}

// year: a report of a year is as exact as that of a day.
func year(t *testing.T, d database) {
	s, in := d.open(t), zone(t)
	begin := time.Date(2025, 12, 20, 7, 0, 0, 0, in)
	r := rand.New(rand.NewPCG(2, 1))
	var entries []*usage.Entry
	add := func(at, until time.Time, seed int) {
		e := entryOf(at.Unix(), uint64(seed)) //nolint:gosec // it is not negative
		e.Until = until.Add(time.Hour).Unix()
		entries = append(entries, e)
		require.NoError(t, s.Add(t.Context(), e))
	}
	for i := range 60 {
		at := begin.Add(time.Duration(i) * 53 * time.Hour)
		add(at, at, i)
		if i%10 == 9 { // late, for an earlier day
			add(at.Add(-time.Duration(r.IntN(60))*24*time.Hour), at, 1000+i)
		}
		if i%4 == 0 {
			tidy(t, s, at)
		}
	}
	for range 10 {
		since := begin.Add(time.Duration(r.IntN(60*53)) * time.Hour)
		q := usage.Query{Days: r.IntN(4) > 0, Since: since.Unix(), Until: since.Add(time.Duration(r.IntN(60*53)) * time.Hour).Unix()}
		for _, q.By = range []string{usage.ByUser, usage.ByHost, usage.ByModel, usage.ByDay} {
			check(t, s, entries, q)
		}
	}
}

func readerAndWriter(t *testing.T, d database) {
	w, begin := d.open(t), time.Date(2026, 11, 2, 0, 0, 0, 0, zone(t)).Unix()
	require.NoError(t, w.Add(t.Context(), entryOf(begin, 1)))
	r := d.openToRead(t)
	entries := []*usage.Entry{entryOf(begin, 1)}
	q := usage.Query{By: usage.ByUser, Since: begin, Until: begin + 3600}
	check(t, r, entries, q)
	for i := range 5 {
		e := entryOf(begin, uint64(i))
		require.NoError(t, w.Add(t.Context(), e))
		entries = append(entries, e)
		check(t, r, entries, q)
	}
	require.Error(t, r.Add(t.Context(), entryOf(begin, 1)), "a reader doesn't write")
}

func gaps(t *testing.T, d database) {
	s := d.open(t)
	const begin = 1_790_000_000 / 3600 * 3600
	e := entryOf(begin, 1)
	e.Gaps = []usage.Gap{{Since: begin + 100, Until: begin + 200}, {Since: begin + 7000, Until: begin + 8000}}
	e.Ended = true
	require.NoError(t, s.Add(t.Context(), e))
	for until, want := range map[int64]int64{begin: 0, begin + 3600: 100, begin + 7200: 300, begin + 10800: 1100} {
		require.Equal(t, want, reportOf(t, s, usage.Query{By: usage.ByUser, Since: begin, Until: until}).Missing)
	}
	require.Equal(t, usage.Mark{Until: begin + 3600, Ended: true}, markOf(t, s))
}

// oldHours: hours are kept for 35 days and days for two years. What is kept doesn't change by
// that, but a report of a time without hours is of whole days.
func oldHours(t *testing.T, d database) {
	s, in := d.open(t), zone(t)
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, in)
	old, older, oldest := now.AddDate(0, 0, -40), now.AddDate(0, -23, 0), now.AddDate(-3, 0, 0)
	var entries []*usage.Entry
	for i, at := range []time.Time{now, now.AddDate(0, 0, -1), old, old.Add(5 * time.Hour), older, oldest} {
		e := entryOf(at.Unix(), uint64(i))
		require.NoError(t, s.Add(t.Context(), e))
		if at != oldest {
			entries = append(entries, e)
		}
	}
	require.Empty(t, tidy(t, s, now))
	for _, by := range []usage.Query{{By: usage.ByUser}, {By: usage.ByHost}, {By: usage.ByDay}} {
		for _, at := range []time.Time{now, now.AddDate(0, 0, -1), old, older, oldest} {
			by.Since, by.Until = at.Unix(), at.Add(time.Hour).Unix()
			check(t, s, entries, by)
		}
		by.Since, by.Until = oldest.Unix(), now.Add(time.Hour).Unix()
		check(t, s, entries, by)
	}
	r := check(t, s, entries, usage.Query{By: usage.ByUser, Since: old.Unix(), Until: old.Add(time.Hour).Unix()})
	require.Equal(t, [2]int64{usage.DayOf(old.Unix(), in), usage.NextDay(old.Unix(), in)}, [2]int64{r.Since.Unix(), r.Until.Unix()})
}

// oddNames: names are data, whatever they look like.
func oddNames(t *testing.T, d database) {
	s := d.open(t)
	const hour = 1_790_000_000 / 3600 * 3600
	sums := make(usage.Sums)
	names := []string{"", "'; DROP TABLE names; --", "007", "7", "ünï", "a b", "NULL", "?1"}
	for i, name := range names {
		sums[usage.SumKey{Hour: hour, Kind: usage.OfUser, Name: name}] = usage.Sum{Amounts: usage.Amounts{Attached: int64(i + 1)}}
	}
	require.NoError(t, s.Add(context.Background(), &usage.Entry{Sums: sums, Since: hour}))
	r := reportOf(t, s, usage.Query{By: usage.ByUser, Days: true, Since: hour, Until: hour + 3600})
	require.Len(t, r.Rows, len(names))
	for _, row := range r.Rows {
		require.Equal(t, row.Key, names[row.Attached-1])
	}
}

// BenchmarkReport reports a year of 1,000 hosts and 300 users.
func BenchmarkReport(b *testing.B) {
	s := database{filepath.Join(b.TempDir(), store.FileName), store.Options{In: time.UTC}}.open(b)
	begin := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	end := begin.AddDate(1, 0, 0)
	for day := begin; day.Before(end); day = day.AddDate(0, 0, 1) {
		sums := make(usage.Sums)
		for kind, names := range map[usage.SumKind]int{usage.OfHost: 1000, usage.OfUser: 300, usage.OfAll: 1} {
			for i := range names {
				sums[usage.SumKey{Kind: kind, Hour: day.Unix(), Name: fmt.Sprint(kind, i)}] = usage.Sum{Amounts: usage.Amounts{Attached: 86400, Used: int64(i)}, Peak: 8}
			}
		}
		require.NoError(b, s.Add(b.Context(), &usage.Entry{Sums: sums, Since: begin.Unix(), Mark: usage.Mark{Until: day.AddDate(0, 0, 1).Unix()}}))
	}
	tidy(b, s, end)
	for name, q := range map[string]usage.Query{
		"user": {By: usage.ByUser}, "host": {By: usage.ByHost}, "day": {By: usage.ByDay},
	} {
		b.Run(name, func(b *testing.B) {
			q.Since, q.Until = begin.AddDate(0, 0, 10).Unix(), end.AddDate(0, 0, -10).Unix()
			for b.Loop() {
				reportOf(b, s, q)
			}
		})
	}
}

// BenchmarkAdd adds what 1,000 hosts do in an hour, minute by minute.
func BenchmarkAdd(b *testing.B) {
	s := database{filepath.Join(b.TempDir(), store.FileName), store.Options{In: time.UTC}}.open(b)
	sums := make(usage.Sums)
	hour := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).Unix()
	for kind, names := range map[usage.SumKind]int{usage.OfHost: 1000, usage.OfUser: 300, usage.OfModel: 5, usage.OfAll: 1} {
		for i := range names {
			sums[usage.SumKey{Hour: hour, Kind: kind, Name: fmt.Sprint(kind, i)}] = usage.Sum{Amounts: usage.Amounts{Attached: 60, Used: 30, Memory: int64(i)}, Peak: 9}
		}
	}
	for i := int64(0); b.Loop(); i++ {
		require.NoError(b, s.Add(b.Context(), &usage.Entry{Sums: sums, Since: hour + i, Mark: usage.Mark{Until: hour + i + 1}}))
	}
}

// What caps counted only grows in a period, whoever writes, and doesn't go with usage that is too old.
func hoursOfCaps(t *testing.T, d database) {
	s, former := d.open(t), d.open(t)
	nov := time.Date(2026, 11, 1, 0, 0, 0, 0, d.options.In)
	dec, now := nov.AddDate(0, 1, 0), nov.AddDate(0, 0, 20)
	tidy(t, s, now.AddDate(9, 0, 0))
	for _, step := range []struct {
		by            *store.Store
		at, period    time.Time
		user          snapshot.Username
		seconds       float64
		running, want string // the period that is read, and its hours
	}{
		{s, now, nov, "alice", 3600.9, "Nov", "map[alice:3600]"},
		{s, now, nov, "bob", 60, "Nov", "map[alice:3600 bob:60]"},
		{s, now, nov, "bob", 60, "Nov", "map[alice:3600 bob:60]"},
		{s, now, nov, "alice", 3700, "Nov", "map[alice:3700 bob:60]"},
		{former, now, nov, "alice", 3650, "Nov", "map[alice:3700 bob:60]"}, // late
		{s, now, nov, "no\x00name", 1, "Nov", "map[alice:3700 bob:60]"},
		{s, now, nov.AddDate(0, -1, 0), "eve", 9, "Nov", "map[alice:3700 bob:60]"},
		{s, dec, dec, "bob", 5, "Dec", "map[bob:5]"},
		{s, now, nov, "bob", 70, "Dec", "map[bob:5]"}, // by a clock that was set back
		{s, dec.AddDate(0, 0, 64), nov, "bob", 80, "", "map[]"},
	} {
		hours := map[string]enforce.Hours{"month": {Period: step.period, Seconds: map[snapshot.Username]float64{step.user: step.seconds}}}
		require.NoError(t, step.by.SaveHours(t.Context(), hours, step.at))
		got := hoursIn(t, d.openToRead(t))["month"]
		require.Equal(t, step.want, fmt.Sprint(got.Seconds), step)
		require.True(t, step.running == "" || step.running == got.Period.In(d.options.In).Format("Jan"), got)
	}
}
