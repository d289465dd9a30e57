package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
)

// forgetterVariable has the path of a database for a process that forgets victims.
const forgetterVariable = "GENV_TEST_USAGE_FORGETTER"

// victim is a user who is forgotten: the names of 30 others begin so.
const victim = "victim-of-all"

func forget(path string) error {
	s, err := store.Open(context.Background(), path, store.Options{In: time.UTC})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Forget(context.Background(), victim)
}

const crowdDays = 40

// crowd has many users, so that their names are on many pages.
func crowd(t *testing.T, path string) *store.Store {
	s, err := store.Open(t.Context(), path, store.Options{In: time.UTC})
	require.NoError(t, err)
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
	_, err = s.Tidy(t.Context(), time.Unix(firstHour+crowdDays*24*3600, 0))
	require.NoError(t, err)
	return s
}

// rowsBut are all rows but those of the victim and of forgotten users, by table and name.
func rowsBut(t *testing.T, path string) (rows []string) {
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	defer db.Close()
	for _, table := range []string{"hour_sums", "day_sums", "month_sums"} {
		found, err := db.Query(fmt.Sprintf("SELECT '%[1]s' || '|' || n.name || '|' || t.start || '|' || t.name || '|' || t.attached || '|' || t.memory FROM %[1]s t JOIN names n ON n.id = t.name WHERE n.name NOT IN (?, ?) ORDER BY 1", table), victim, string(usage.Forgotten))
		require.NoError(t, err)
		for found.Next() {
			var row string
			require.NoError(t, found.Scan(&row))
			rows = append(rows, row)
		}
		require.NoError(t, found.Err())
		require.NoError(t, found.Close())
	}
	slices.Sort(rows)
	return rows
}

// namesIn reports whether the files of a database have the name of the victim.
func namesIn(t *testing.T, path string) bool {
	for _, with := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + with)
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		for _, found := range bytes.SplitAfter(data, []byte(victim))[1:] {
			if !bytes.HasPrefix(found, []byte("-")) {
				return true
			}
		}
	}
	return false
}

// What is forgotten is not in the files any more, and nothing else has changed.
func TestForgottenInFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), store.FileName)
	s := crowd(t, path)
	defer s.Close()
	require.True(t, namesIn(t, path))
	before := rowsBut(t, path)
	require.NoError(t, s.Forget(t.Context(), victim))
	require.False(t, namesIn(t, path))
	require.Equal(t, before, rowsBut(t, path))
}

// Killed at any moment, it leaves sums that are right, and does the rest when it is called again. A writer adds entries
// meanwhile.
func TestForgetKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), store.FileName)
	s := crowd(t, path)
	defer s.Close()
	total := func() (sum int64, names []string) {
		r, err := s.Report(t.Context(), usage.Query{By: usage.ByUser, Since: firstHour, Until: firstHour + 200*24*3600})
		require.NoError(t, err)
		for _, row := range r.Rows {
			sum += row.Attached
			names = append(names, row.Name)
		}
		return sum, names
	}
	want, _ := total()
	others := len(rowsBut(t, path))
	killed := 0
	for i := range 8 {
		forgetter := exec.Command(os.Args[0])
		forgetter.Env = append(os.Environ(), forgetterVariable+"="+path)
		require.NoError(t, forgetter.Start())
		kill := time.AfterFunc(time.Duration(50+i*25)*time.Millisecond, func() { _ = forgetter.Process.Kill() })
		e := &usage.Entry{Sums: usage.Sums{
			{Hour: firstHour + (crowdDays+1)*24*3600, Kind: usage.OfUser, Name: victim + "-other"}: {Amounts: usage.Amounts{Attached: 1}},
		}, Mark: usage.Mark{Until: firstHour + (crowdDays+2)*24*3600}}
		require.NoError(t, s.Add(t.Context(), e))
		want++
		if err := forgetter.Wait(); err != nil {
			killed++
		}
		kill.Stop()
		sum, _ := total()
		require.Equal(t, want, sum)
	}
	t.Logf("killed %d of 8 times", killed)
	require.NoError(t, forget(path))
	sum, names := total()
	require.Equal(t, want, sum)
	require.NotContains(t, names, victim)
	require.Contains(t, names, string(usage.Forgotten))
	require.False(t, namesIn(t, path))
	require.Len(t, rowsBut(t, path), others+2, "an hour and a day of the other one")
}

// Names that nothing has any more don't stay: neither after pseudonyms, nor when rows are too old.
func TestNamesGo(t *testing.T) {
	path := filepath.Join(t.TempDir(), store.FileName)
	require.NoError(t, crowd(t, path).Close())
	end := time.Unix(firstHour+crowdDays*24*3600, 0)
	s, err := store.Open(t.Context(), path, store.Options{In: time.UTC, Pseudonyms: store.Pseudonyms{After: 24 * time.Hour, Of: func(user string) string { return usage.Pseudonym([]byte("k"), user) }}})
	require.NoError(t, err)
	_, err = s.Tidy(t.Context(), end.AddDate(0, 0, 2))
	require.NoError(t, err)
	n, err := s.RowsOf(t.Context(), usage.Pseudonym([]byte("k"), victim))
	require.NoError(t, err)
	require.Positive(t, n)
	require.NoError(t, s.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.False(t, strings.Contains(string(data), victim), "no user is named any more")

	path = filepath.Join(t.TempDir(), store.FileName)
	s = crowd(t, path)
	_, err = s.Tidy(t.Context(), end.AddDate(4, 0, 0))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	data, err = os.ReadFile(path)
	require.NoError(t, err)
	require.False(t, strings.Contains(string(data), victim))
}
