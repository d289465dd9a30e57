package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
)

// writerVariable has the path of a database for a process that writes until it is killed.
const writerVariable = "GENV_TEST_USAGE_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerVariable); path != "" {
		fmt.Fprintln(os.Stderr, writeForEver(path))
		os.Exit(1)
	}
	if path := os.Getenv(forgetterVariable); path != "" {
		if err := forget(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func TestFile(t *testing.T) {
	in, err := time.LoadLocation(testZone)
	require.NoError(t, err)
	testStore(t, func(t *testing.T) database {
		path := filepath.Join(t.TempDir(), "odd ?#% name", store.FileName)
		require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
		return database{
			Open:       func() (*store.Store, error) { return store.Open(t.Context(), path, store.Options{In: in}) },
			OpenToRead: func() (*store.Store, error) { return store.OpenToRead(t.Context(), path, store.Options{In: in}) },
			OpenNameless: func(p store.Pseudonyms) (*store.Store, error) {
				return store.Open(t.Context(), path, store.Options{In: in, Pseudonyms: p})
			},
		}
	})
}

const firstHour = 1_790_000_000 / 3600 * 3600

// writeForEver adds entries, each of an hour, and prints each when Add has returned.
func writeForEver(path string) error {
	s, err := store.Open(context.Background(), path, store.Options{In: time.UTC})
	if err != nil {
		return err
	}
	mark, err := s.Mark(context.Background())
	if err != nil {
		return err
	}
	for i := max(mark.Until-firstHour, 0) / 3600; ; i++ {
		if err := s.Add(context.Background(), entryOf(firstHour+i*3600, uint64(i))); err != nil { //nolint:gosec // it is not negative
			return err
		}
		fmt.Println(i)
	}
}

// After kill -9 at any moment, all entries are there that were added, each as a whole and
// once, and at most one more that Add had not returned for.
func TestKilled(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), store.FileName)
	for round := range 6 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerVariable+"="+path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		var last int64
		for range 3 + 7*round {
			_, err := fmt.Fscan(out, &last)
			require.NoError(t, err)
		}
		require.NoError(t, cmd.Process.Kill())
		for err == nil {
			_, err = fmt.Fscan(out, &last)
		}
		require.Error(t, cmd.Wait())

		s, err := store.OpenToRead(t.Context(), path, store.Options{In: time.UTC})
		require.NoError(t, err)
		mark, err := s.Mark(t.Context())
		require.NoError(t, err)
		entries := (mark.Until - firstHour) / 3600
		require.Contains(t, []int64{last + 1, last + 2}, entries)
		var want usage.Sum
		for i := range entries {
			sum := entryOf(firstHour+i*3600, uint64(i)).Sums[usage.SumKey{Hour: firstHour + i*3600, Kind: usage.OfAll}] //nolint:gosec // it is not negative
			want.Add(&sum)
		}
		r, err := s.Report(t.Context(), usage.Query{Kind: usage.OfAll, Since: firstHour, Until: mark.Until})
		require.NoError(t, err)
		require.Equal(t, want, r.Total)
		require.NoError(t, s.Close())
	}
}

// The rows of a day are the sums of those of its hours, whenever they are written, and however
// late an hour is added.
func TestDaysAreSumsOfHours(t *testing.T) {
	in, err := time.LoadLocation(testZone)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), store.FileName)
	s, err := store.Open(t.Context(), path, store.Options{In: in})
	require.NoError(t, err)
	defer s.Close()
	begin := time.Date(2026, 10, 23, 7, 0, 0, 0, in)
	for i := range 6 * 24 {
		hour := begin.Add(time.Duration(i) * time.Hour)
		require.NoError(t, s.Add(t.Context(), entryOf(hour.Unix(), uint64(i)))) //nolint:gosec // it is not negative
		if i%31 == 0 {
			late := entryOf(begin.Add(time.Duration(i/2)*time.Hour).Unix(), 1000)
			late.Until = hour.Add(time.Hour).Unix()
			require.NoError(t, s.Add(t.Context(), late))
		}
		if i%7 == 0 {
			_, err := s.Tidy(t.Context(), hour)
			require.NoError(t, err)
		}
	}
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	last := time.Date(2026, 10, 29, 0, 0, 0, 0, in).Unix() // the first day that isn't written
	const sums = "SELECT device, user, eid, sum(attached), sum(used), sum(computing), sum(idle), sum(unknown), sum(unmeasured), sum(memory), sum(findings), sum(terminated), sum(detached) FROM "
	var differ, rows, later int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM (SELECT * FROM ("+sums+"days GROUP BY 1, 2, 3) EXCEPT SELECT * FROM ("+sums+"hours WHERE start < ? GROUP BY 1, 2, 3))", last).Scan(&differ))
	require.NoError(t, db.QueryRow("SELECT count(*), count(*) FILTER (WHERE start >= ?) FROM days", last).Scan(&rows, &later))
	require.Zero(t, differ)
	require.NotZero(t, rows)
	require.Zero(t, later)
}

// A database of version 1 has the rows of a day with those of its hours: they aren't written a
// second time.
func TestUpgrade(t *testing.T) {
	path := filepath.Join(t.TempDir(), store.FileName)
	first, err := store.Open(t.Context(), path, store.Options{In: time.UTC})
	require.NoError(t, err)
	require.NoError(t, first.Add(t.Context(), entryOf(firstHour, 1)))
	require.NoError(t, first.Close())
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Exec("INSERT INTO days SELECT start - start % 86400, device, user, eid, attached, used, computing, idle, unknown, unmeasured, memory, findings, terminated, detached FROM hours; DROP TABLE month_sums; PRAGMA user_version = 1")
	require.NoError(t, err)
	reader, err := store.OpenToRead(t.Context(), path, store.Options{In: time.UTC})
	require.NoError(t, err)
	defer reader.Close()
	_, err = reader.Report(t.Context(), usage.Query{Kind: usage.ByUser, Since: firstHour, Until: firstHour + 86400})
	require.NoError(t, err)

	s, err := store.Open(t.Context(), path, store.Options{In: time.UTC})
	require.NoError(t, err)
	defer s.Close()
	for _, hour := range []int64{firstHour + 3600, firstHour + 2*86400} {
		require.NoError(t, s.Add(t.Context(), entryOf(hour, 1)))
		_, err = s.Tidy(t.Context(), time.Unix(hour, 0))
		require.NoError(t, err)
	}
	var days, hours int64
	require.NoError(t, db.QueryRow("SELECT sum(attached) FROM days").Scan(&days))
	require.NoError(t, db.QueryRow("SELECT sum(attached) FROM hours WHERE start < ?", firstHour+2*86400).Scan(&hours))
	require.Equal(t, hours, days)
}

// A full disk refuses an entry as a whole; with room again it is added.
func TestFull(t *testing.T) {
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), store.FileName), store.Options{In: time.UTC, MaxBytes: 256 << 10})
	require.NoError(t, err)
	defer s.Close()
	hour := int64(firstHour)
	for err == nil {
		hour += 3600
		err = s.Add(t.Context(), entryOf(hour, 1))
	}
	require.ErrorIs(t, err, usage.ErrFull)
	mark, err := s.Mark(t.Context())
	require.NoError(t, err)
	require.Equal(t, hour, mark.Until, "nothing of it is there")
	early, err := s.Tidy(t.Context(), time.Unix(hour, 0))
	require.NoError(t, err)
	require.Contains(t, early, "what it kept of single environments and devices until 2026-")
	require.NoError(t, s.Add(t.Context(), entryOf(hour, 1)))
	r, err := s.Report(t.Context(), usage.Query{Kind: usage.ByUser, Since: firstHour, Until: hour + 3600})
	require.NoError(t, err)
	one := entryOf(hour, 1).Sums[usage.SumKey{Hour: hour, Kind: usage.OfAll}]
	require.Equal(t, one.Attached*(hour-firstHour)/3600, r.Total.Attached, "the sums stay")
}

// What can't be used as a database is an error that says what to do, and isn't changed.
func TestUnusable(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	newer := filepath.Join(dir, "newer")
	s, err := store.Open(t.Context(), newer, store.Options{In: time.UTC})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	db, err := sql.Open("sqlite", newer)
	require.NoError(t, err)
	_, err = db.Exec("PRAGMA user_version = 99")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(newer, link))
	for _, test := range []struct {
		path        string
		write, read error
	}{
		{write("text", strings.Repeat("this is a text\n", 100)), usage.ErrDamaged, usage.ErrDamaged},
		{newer, usage.ErrNewer, usage.ErrNewer},
		{link, unix.ELOOP, fs.ErrNotExist},
		{filepath.Join(dir, "none", "usage.db"), fs.ErrNotExist, fs.ErrNotExist},
	} {
		before, _ := os.ReadFile(test.path)
		_, err := store.Open(t.Context(), test.path, store.Options{In: time.UTC})
		require.True(t, errors.Is(err, test.write), "%s: %v", test.path, err)
		_, err = store.OpenToRead(t.Context(), test.path, store.Options{In: time.UTC})
		require.True(t, errors.Is(err, test.read), "%s: %v", test.path, err)
		after, _ := os.ReadFile(test.path)
		require.Equal(t, before, after)
	}
	_, err = store.OpenToRead(t.Context(), filepath.Join(dir, "missing"), store.Options{In: time.UTC})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoFileExists(t, filepath.Join(dir, "missing"))
}

// Only the user of the controller may read it.
func TestModes(t *testing.T) {
	dir := t.TempDir()
	s, err := store.Open(t.Context(), filepath.Join(dir, store.FileName), store.Options{In: time.UTC})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Add(t.Context(), entryOf(firstHour, 1)))
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, f := range files {
		info, err := f.Info()
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), info.Mode(), f.Name())
	}
}
