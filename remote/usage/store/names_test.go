package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
)

// filled adds a hundred days of usage, in an odd order of users and hosts.
func filled(t *testing.T, s *store.Store, begin time.Time) (entries []*usage.Entry) {
	for i := range 50 {
		at := begin.Add(time.Duration(i) * 49 * time.Hour)
		e := entryOf(at.Unix(), uint64(i)) //nolint:gosec // it is not negative
		entries = append(entries, e)
		require.NoError(t, s.Add(t.Context(), e))
		if i%4 == 0 {
			_, err := s.Tidy(t.Context(), at)
			require.NoError(t, err)
		}
	}
	return entries
}

// byUser are the rows of a report about all users.
func byUser(t *testing.T, s *store.Store, since, until time.Time) map[string]usage.Sum {
	r, err := s.Report(t.Context(), usage.Query{By: usage.ByUser, Since: since.Unix(), Until: until.Unix()})
	require.NoError(t, err)
	rows := make(map[string]usage.Sum)
	for _, row := range r.Rows {
		rows[row.Name] = row.Sum
	}
	return rows
}

// renamed are rows as they are when users have other names.
func renamed(rows map[string]usage.Sum, names map[string]string) map[string]usage.Sum {
	next := make(map[string]usage.Sum)
	for user := range rows {
		sum, name := rows[user], user
		if to := names[user]; to != "" {
			name = to
		}
		total := next[name]
		total.Add(&sum)
		next[name] = total
	}
	return next
}

// forgotten: what users had who are forgotten is somebody's, and nothing else changes.
func forgotten(t *testing.T, d database) {
	w, in := d.open(t), zone(t)
	begin := time.Date(2026, 7, 20, 7, 0, 0, 0, in)
	end := begin.AddDate(0, 0, 102)
	filled(t, w, begin)
	odd := "'; DROP TABLE names; -- ../../\x1b[31m"
	more := &usage.Entry{Sums: make(usage.Sums), Since: end.Unix()}
	for _, name := range []string{odd, "gpu-1"} { // a user who is named like a host
		more.Sums[usage.SumKey{Hour: end.Unix(), Kind: usage.OfUser, Name: name}] = usage.Sum{Amounts: usage.Amounts{Attached: 7}, Peak: 1}
	}
	require.NoError(t, w.Add(t.Context(), more))
	until := end.Add(2 * time.Hour)
	before := byUser(t, w, begin, until)
	hosts := usage.Query{By: usage.ByHost, Since: begin.Unix(), Until: until.Unix()}
	hostsBefore, err := w.Report(t.Context(), hosts)
	require.NoError(t, err)

	other, err := d.Open() // as another process
	require.NoError(t, err)
	defer other.Close()
	for _, stranger := range []string{"user-", "user-1 ", "User-1", "%", "*", "", "user-10"} {
		n, err := other.RowsOf(t.Context(), stranger)
		require.NoError(t, err)
		require.Zero(t, n, stranger)
		require.NoError(t, other.Forget(t.Context(), stranger))
		require.Equal(t, before, byUser(t, w, begin, until), stranger)
	}
	users := []string{"user-1", "user-3", odd, "gpu-1"}
	n, err := other.RowsOf(t.Context(), users...)
	require.NoError(t, err)
	require.Greater(t, n, int64(100))
	names := make(map[string]string)
	for _, user := range users {
		names[user] = string(usage.Forgotten)
	}
	for range 2 {
		require.NoError(t, other.Forget(t.Context(), users...))
		require.Equal(t, renamed(before, names), byUser(t, w, begin, until))
		after, err := w.Report(t.Context(), hosts)
		require.NoError(t, err)
		require.Equal(t, hostsBefore, after, "the sums of hosts stay, and of all")
		n, err = other.RowsOf(t.Context(), users...)
		require.NoError(t, err)
		require.Zero(t, n)
	}

	// One who is seen again, by a writer who knew the name before, is counted again.
	again := entryOf(end.Add(time.Hour).Unix(), 3)
	require.NoError(t, w.Add(t.Context(), again))
	want := renamed(before, names)
	rows, _ := expect([]*usage.Entry{again}, usage.Query{By: usage.ByUser, Until: 1 << 40}, in)
	for user := range rows {
		sum, total := rows[user], want[user]
		total.Add(&sum)
		want[user] = total
	}
	require.Contains(t, rows, "user-1")
	require.Equal(t, want, byUser(t, w, begin, until.Add(time.Hour)))
}

// pseudonyms: users of old days have pseudonyms, in all sums, and in what comes too late.
func pseudonyms(t *testing.T, d database) {
	of := func(user string) string { return usage.Pseudonym([]byte("a key"), user) }
	const days = 20
	s, err := d.OpenNameless(store.Pseudonyms{After: days * 24 * time.Hour, Of: of})
	require.NoError(t, err)
	defer s.Close()
	in := zone(t)
	begin := time.Date(2026, 7, 20, 7, 0, 0, 0, in)
	end := begin.AddDate(0, 0, 102)
	entries := filled(t, s, begin)
	late := entryOf(begin.AddDate(0, 0, 3).Unix(), 77)
	late.Until = end.Unix()
	for range 2 { // Tidy again changes nothing
		require.NoError(t, s.Add(t.Context(), late)) // of a day that has pseudonyms already
		entries = append(entries, late)
		_, err = s.Tidy(t.Context(), end)
		require.NoError(t, err)
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
