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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/testfleet/servers"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// writerVariable has the path of a database for a process that writes until it is killed.
const writerVariable = "GENV_TEST_USAGE_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerVariable); path != "" {
		fmt.Fprintln(os.Stderr, writeForEver(path))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func TestFile(t *testing.T) {
	testStore(t, func(t *testing.T) database {
		path := filepath.Join(t.TempDir(), "odd ?#% name", store.FileName)
		require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
		return database{path, store.Options{In: zone(t)}}
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
		out := proctest.Try(cmd.StdoutPipe()).OK(t)
		require.NoError(t, cmd.Start())
		var last int64
		for range 3 + 7*round {
			proctest.Try(fmt.Fscan(out, &last)).OK(t)
		}
		require.NoError(t, cmd.Process.Kill())
		for n := 1; n == 1; {
			n, _ = fmt.Fscan(out, &last)
		}
		require.Error(t, cmd.Wait())

		s := proctest.Try(store.OpenToRead(t.Context(), path, store.Options{In: time.UTC})).OK(t)
		mark := markOf(t, s)
		entries := (mark.Until - firstHour) / 3600
		require.Contains(t, []int64{last + 1, last + 2}, entries)
		var want usage.Sum
		for i := range entries {
			sum := entryOf(firstHour+i*3600, uint64(i)).Sums[usage.SumKey{Hour: firstHour + i*3600, Kind: usage.OfAll}] //nolint:gosec // it is not negative
			want.Add(&sum)
		}
		r := reportOf(t, s, usage.Query{By: usage.ByDay, Since: firstHour, Until: mark.Until})
		require.Equal(t, want, sumOf(&r.Total))
		require.NoError(t, s.Close())
	}
}

// oldRows are the columns of the tables that databases had before version 4.
const oldRows = `start INTEGER, device INTEGER, user INTEGER, eid, attached INTEGER NOT NULL, used INTEGER NOT NULL, computing INTEGER NOT NULL,
	idle INTEGER NOT NULL, unknown INTEGER NOT NULL, unmeasured INTEGER NOT NULL, memory INTEGER NOT NULL, findings INTEGER NOT NULL,
	terminated INTEGER NOT NULL, detached INTEGER NOT NULL, PRIMARY KEY (start, device, user, eid)) WITHOUT ROWID;`

// Rows of single environments, which take more room than the file may have.
const oldTables = `
CREATE TABLE devices (id INTEGER PRIMARY KEY, host INTEGER NOT NULL, device INTEGER NOT NULL, model INTEGER NOT NULL, UNIQUE (host, device, model));
CREATE TABLE hours (` + oldRows + `
CREATE TABLE days (` + oldRows + `
INSERT INTO devices SELECT id, id, id, id FROM names;
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
	INSERT INTO hours SELECT i, i, id, i, 1, 1, 1, 1, 1, 1, i, 1, 1, 1 FROM n, names WHERE name = 'user-1';
INSERT INTO days SELECT * FROM hours;
INSERT INTO facts VALUES ('days', 1), ('removed', 1);`

// Sums of months, of which writers up to version 4 kept count.
const oldMonths = `
CREATE TABLE month_sums AS SELECT * FROM day_sums;
INSERT INTO facts VALUES ('months', 1790000000);`

// schemaOf is what a database of the current version has.
func schemaOf(t *testing.T, path string) (schema []string) {
	db := proctest.Try(sql.Open("sqlite", path)).OK(t)
	defer db.Close()
	rows, err := db.Query("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL UNION SELECT 'user_version ' || user_version FROM pragma_user_version " +
		"UNION SELECT 'fact ' || name FROM facts")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		schema = append(schema, line)
	}
	require.NoError(t, rows.Err())
	return schema
}

// A database of an older version is read as it is. The next writer removes the tables that nothing reads; reports stay
// the same, and there is room for more.
func TestUpgrade(t *testing.T) {
	in, begin := zone(t), time.Date(2026, 7, 20, 7, 0, 0, 0, zone(t))
	newest := filepath.Join(t.TempDir(), store.FileName)
	o := store.Options{In: in, MaxBytes: 1 << 20}
	first := proctest.Try(store.Open(t.Context(), newest, o)).OK(t)
	written := filled(t, first, begin)
	require.NoError(t, first.Close())
	current := schemaOf(t, newest)
	require.NotContains(t, fmt.Sprint(current), "cap_hours", "a full file of an earlier version has no room for it")
	for version, older := range map[int]string{4: oldMonths, 3: oldMonths + oldTables, 2: oldTables, 1: oldTables} {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			path, entries := filepath.Join(t.TempDir(), store.FileName), slices.Clone(written)
			require.NoError(t, os.WriteFile(path, proctest.ReadFile(t, newest), 0o600))
			db := proctest.Try(sql.Open("sqlite", path)).OK(t)
			proctest.Try(db.Exec(older + fmt.Sprintf("; PRAGMA user_version = %d", version))).OK(t)
			require.NoError(t, db.Close())
			require.True(t, proctest.Try(os.Stat(path)).OK(t).Size() > o.MaxBytes || version == 4)
			checkAll := func(s *store.Store) {
				require.Empty(t, hoursIn(t, s))
				for _, q := range []usage.Query{{By: usage.ByUser}, {By: usage.ByHost}, {By: usage.ByModel}, {By: usage.ByDay}} {
					q.Since, q.Until = begin.Unix(), begin.AddDate(0, 0, 110).Unix()
					check(t, s, entries, q)
				}
			}
			reader := proctest.Try(store.OpenToRead(t.Context(), path, o)).OK(t)
			checkAll(reader)
			require.NoError(t, reader.Close())

			s := database{path, o}.open(t)
			checkAll(s)
			require.Equal(t, current, schemaOf(t, path))
			for i := range 50 {
				e := entryOf(begin.AddDate(0, 0, 103).Unix()+int64(i%24)*3600, uint64(i))
				require.NoError(t, s.Add(t.Context(), e))
				entries = append(entries, e)
			}
			require.Empty(t, tidy(t, s, begin.AddDate(0, 0, 104)))
			checkAll(s)
		})
	}
}

// A full disk refuses an entry as a whole; with room again it is added.
func TestFull(t *testing.T) {
	s := database{filepath.Join(t.TempDir(), store.FileName), store.Options{In: time.UTC, MaxBytes: 128 << 10}}.open(t)
	hour, err := int64(firstHour), error(nil)
	for ; err == nil; err = s.Add(t.Context(), entryOf(hour, 1)) {
		hour += 3600
	}
	require.ErrorIs(t, err, usage.ErrFull)
	require.Equal(t, hour, markOf(t, s).Until, "nothing of it is there")
	require.Contains(t, tidy(t, s, time.Unix(hour, 0)), "what it kept by hour until 2026-")
	require.NoError(t, s.Add(t.Context(), entryOf(hour, 1)))
	r := reportOf(t, s, usage.Query{By: usage.ByUser, Since: firstHour, Until: hour + 3600})
	one := entryOf(hour, 1).Sums[usage.SumKey{Hour: hour, Kind: usage.OfAll}]
	require.Equal(t, one.Attached*(hour-firstHour)/3600, r.Total.Attached, "what it kept by day stays")
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
	s := proctest.Try(store.Open(t.Context(), newer, store.Options{In: time.UTC})).OK(t)
	require.NoError(t, s.Close())
	db := proctest.Try(sql.Open("sqlite", newer)).OK(t)
	proctest.Try(db.Exec("PRAGMA user_version = 99")).OK(t)
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
	require.ErrorIs(t, proctest.Try(store.OpenToRead(t.Context(), filepath.Join(dir, "missing"), store.Options{In: time.UTC})).Err, fs.ErrNotExist)
	require.NoFileExists(t, filepath.Join(dir, "missing"))
}

// Only the user of the controller may read it.
func TestModes(t *testing.T) {
	dir := t.TempDir()
	s := database{filepath.Join(dir, store.FileName), store.Options{In: time.UTC}}.open(t)
	require.NoError(t, s.Add(t.Context(), entryOf(firstHour, 1)))
	files := proctest.Try(os.ReadDir(dir)).OK(t)
	require.Len(t, files, 3)
	for _, f := range files {
		require.Equal(t, fs.FileMode(0o600), proctest.Try(f.Info()).OK(t).Mode(), f.Name())
	}
}

// The server's disk is full: an entry is refused as a whole, and says so; with room again it is
// added, and counts once.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	servers.RequirePostgres(t)
	disk := proctest.PublicDir(t, 0o700)
	if err := unix.Mount("none", disk, "tmpfs", 0, "size=256m"); err != nil {
		t.Skipf("only root can mount a small file system: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(disk, unix.MNT_DETACH)) }) // the server ends before
	server := servers.StartPostgres(t, disk)
	s := open(t, server, options())
	var kept []*usage.Entry
	add := func() error {
		e := entryOf(firstHour+int64(len(kept))*3600, uint64(len(kept)))
		e.ID = fmt.Sprint(len(kept))
		err := s.Add(t.Context(), e)
		if err == nil {
			kept = append(kept, e)
		}
		return err
	}
	require.NoError(t, add())
	ballast := filepath.Join(disk, "ballast")
	_ = os.WriteFile(ballast, make([]byte, 256<<20), 0o600) // as much as fits
	err := add()
	for ; err == nil; err = add() {
		require.Less(t, len(kept), 1000)
	}
	require.ErrorIs(t, err, usage.ErrFull)
	require.Equal(t, attached(kept...), total(t, s).Total.Attached, "nothing of it is there")
	require.NoError(t, os.Remove(ballast))
	require.Eventually(t, func() bool { return add() == nil }, time.Minute, 100*time.Millisecond)
	require.Equal(t, attached(kept...), total(t, s).Total.Attached)
}
