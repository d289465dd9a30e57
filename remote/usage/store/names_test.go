package store_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// filled adds a hundred days of usage, in an odd order of users and hosts.
func filled(t *testing.T, s *store.Store, begin time.Time) (entries []*usage.Entry) {
	for i := range 50 {
		at := begin.Add(time.Duration(i) * 49 * time.Hour)
		e := entryOf(at.Unix(), uint64(i)) //nolint:gosec // it is not negative
		entries = append(entries, e)
		require.NoError(t, s.Add(t.Context(), e))
		if i%4 == 0 {
			tidy(t, s, at)
		}
	}
	return entries
}

// byUser are the rows of a report about all users.
func byUser(t *testing.T, s *store.Store, since, until time.Time) map[string]usage.Sum {
	r := reportOf(t, s, usage.Query{By: usage.ByUser, Since: since.Unix(), Until: until.Unix()})
	rows := make(map[string]usage.Sum)
	for _, row := range r.Rows {
		rows[row.Key] = sumOf(&row)
	}
	return rows
}

// pseudonyms: users of old days have pseudonyms, in all sums, and in what comes too late.
func pseudonyms(t *testing.T, d database) {
	of := func(user string) string { return usage.Pseudonym([]byte("a key"), user) }
	const days = 20
	d.options.Pseudonym, d.options.PseudonymsAfter = of, days*24*time.Hour
	s, in := d.open(t), zone(t)
	begin := time.Date(2026, 7, 20, 7, 0, 0, 0, in)
	end := begin.AddDate(0, 0, 102)
	entries := filled(t, s, begin)
	late := entryOf(begin.AddDate(0, 0, 3).Unix(), 77)
	late.Until = end.Unix()
	for range 2 { // Tidy again changes nothing
		require.NoError(t, s.Add(t.Context(), late)) // of a day that has pseudonyms already
		entries = append(entries, late)
		tidy(t, s, end)
		boundary := usage.DayOf(end.AddDate(0, 0, -days).Unix(), in)
		want := make(map[string]usage.Sum)
		for _, part := range []struct {
			q  usage.Query
			of func(string) string
		}{{usage.Query{Until: boundary}, of}, {usage.Query{Since: boundary, Until: 1 << 40}, func(user string) string { return user }}} {
			part.q.By = usage.ByUser
			rows, _ := expect(entries, part.q, in)
			for user := range rows {
				sum, total := rows[user], want[part.of(user)]
				total.Add(&sum)
				want[part.of(user)] = total
			}
		}
		require.Contains(t, want, "user-1")
		require.Contains(t, want, of("user-1"))
		require.Equal(t, want, byUser(t, s, begin, end))
		old := byUser(t, s, begin, time.Unix(boundary, 0))
		require.Len(t, old, 5)
		for user := range old {
			require.True(t, usage.IsPseudonym(user), user)
		}
		check(t, s, entries, usage.Query{By: usage.ByHost, Since: begin.Unix(), Until: end.Unix()})
	}
}

// victim is a user whose name goes: those of others begin so.
const victim = "victim-of-all"

const crowdDays = 40

// crowd has many users, so that their names are on many pages.
func crowd(t *testing.T, path string) *store.Store {
	s := proctest.Try(store.Open(t.Context(), path, store.Options{In: time.UTC})).OK(t)
	for i := range crowdDays {
		hour := int64(firstHour + i*24*3600)
		e := &usage.Entry{Sums: make(usage.Sums), Since: hour, Mark: usage.Mark{Until: hour + 3600}}
		for k := range 31 {
			name := victim
			if k > 0 {
				name = fmt.Sprintf("%s-%d-%d", victim, i, k)
			}
			e.Sums[usage.SumKey{Hour: hour, Kind: usage.OfUser, Name: name}] = usage.Sum{Amounts: usage.Amounts{Attached: int64(i + k)}, Peak: int64(k)}
		}
		require.NoError(t, s.Add(t.Context(), e))
	}
	tidy(t, s, time.Unix(firstHour+crowdDays*24*3600, 0))
	return s
}

// Names that nothing has any more don't stay: neither after pseudonyms, nor when rows are too old.
func TestNamesGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), store.FileName)
	require.NoError(t, crowd(t, path).Close())
	end := time.Unix(firstHour+crowdDays*24*3600, 0)
	s, err := store.Open(t.Context(), path, store.Options{In: time.UTC, PseudonymsAfter: 24 * time.Hour, Pseudonym: func(user string) string { return usage.Pseudonym([]byte("k"), user) }})
	require.NoError(t, err)
	tidy(t, s, end.AddDate(0, 0, 2))
	require.Contains(t, byUser(t, s, time.Unix(firstHour, 0), end), usage.Pseudonym([]byte("k"), victim))
	require.NoError(t, s.Close())
	data := proctest.ReadFile(t, path)
	require.False(t, strings.Contains(string(data), victim), "no user is named any more")

	path = filepath.Join(t.TempDir(), store.FileName)
	s = crowd(t, path)
	tidy(t, s, end.AddDate(4, 0, 0))
	require.NoError(t, s.Close())
	data = proctest.ReadFile(t, path)
	require.False(t, strings.Contains(string(data), victim))
}
