package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/seed-3119e985/genv/remote/usage"
)

// FileName is in a controller's folder.
const FileName = "usage.db"

const (
	fileVersion = 5 // of the schema. Higher versions are left alone.
	pageSize    = 4096
)

type file struct{}

// openFile makes writers begin immediate: deferred transactions fail at once if another process wrote meanwhile.
func (s *Store) openFile(path string) error {
	query := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(10000)", "temp_store(memory)", "cache_size(-16000)", "journal_mode(wal)", "synchronous(full)",
		"journal_size_limit(67108864)",
		fmt.Sprintf("max_page_count(%d)", max(s.options.MaxBytes/pageSize, 64)),
	}}
	if !s.writes {
		query = url.Values{"_txlock": {"deferred"}, "_pragma": append(query["_pragma"][:3:3], "query_only(1)")}
	}
	if err := s.checkFile(path); err != nil {
		return err
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	s.dialect, s.words = file{}, fileWords()
	s.db, err = sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String())
	return err
}

// checkFile creates a writer's file: SQLite's other files copy its mode.
func (s *Store) checkFile(path string) error {
	if s.writes {
		created, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		return created.Close()
	}
	info, err := os.Lstat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Size() == 0) {
		err = &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return err
}

// prepare also removes unused tables of earlier versions.
func (file) prepare(t *tx) {
	found, _ := t.number("PRAGMA user_version")
	if found > fileVersion {
		t.err = fmt.Errorf("%w: its version is %d, and this one knows %d", usage.ErrNewer, found, fileVersion)
	}
	if t.err != nil || !t.writes || found == fileVersion {
		return
	}
	script := "DROP TABLE IF EXISTS hours; DROP TABLE IF EXISTS days; DROP TABLE IF EXISTS devices; DROP TABLE IF " +
		"EXISTS month_sums; DELETE FROM facts WHERE name IN ('days', 'removed', 'months');\n"
	if found == 0 {
		script = fileSchema
	}
	t.run(script + fmt.Sprintf("PRAGMA user_version = %d", fileVersion))
}

var fileSchema = "CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;\n" +
	"CREATE TABLE gaps (since INTEGER PRIMARY KEY, until INTEGER NOT NULL);\n" +
	"CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);\n" +
	createSums(hourSums) + createSums(daySums)

func createSums(in sumTable) string {
	return fmt.Sprintf("CREATE TABLE %s (kind INTEGER, start INTEGER, name INTEGER, %s, PRIMARY KEY (kind, start, "+
		"name)) WITHOUT ROWID;\n", in, columnTypes("INTEGER"))
}

func (f *databaseFacts) byName() map[string]any {
	return map[string]any{
		"begun": &f.begun, "hours": &f.hours, "nameless": &f.nameless, "until": &f.Until, "ended": &f.Ended,
	}
}

func (file) facts(t *tx) (f databaseFacts) {
	for name, value := range f.byName() {
		t.rows([]any{value}, func() {}, "SELECT value FROM facts WHERE name = $1", name)
	}
	return f
}

func (file) saveFacts(t *tx) {
	for name, value := range t.byName() {
		t.run("INSERT INTO facts VALUES ($1, $2) ON CONFLICT DO UPDATE SET value = excluded.value WHERE value <> "+
			"excluded.value", name, value)
	}
}

// removeNames rewrites all pages with only used names, as SQLite leaves copies in split pages.
func (file) removeNames(ctx context.Context, s *Store) error {
	if _, err := s.db.ExecContext(ctx, "PRAGMA secure_delete = 1"); err != nil {
		return s.translated(err)
	}
	defer func() { _, _ = s.db.ExecContext(ctx, "PRAGMA secure_delete = 0") }() // it only costs time
	return s.transaction(ctx, func(t *tx) {
		if unused, _ := t.number("SELECT EXISTS (SELECT 1 FROM names WHERE " + unusedNames + ")"); unused > 0 {
			t.run("DROP TABLE IF EXISTS temp.kept; CREATE TEMP TABLE kept AS SELECT id, name FROM names WHERE NOT (" +
				unusedNames + "); DELETE FROM names; INSERT INTO names SELECT id, name FROM temp.kept; DROP TABLE " +
				"temp.kept")
		}
	})
}

func (file) translated(err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: %w", usage.ErrFull, err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", usage.ErrDamaged, err)
	}
	return err
}

// SetDamagedApart renames a damaged file.
func SetDamagedApart(path string, why error, now time.Time, log zerolog.Logger) error {
	damaged := path + ".damaged-" + now.Format("20060102-150405")
	if err := os.Rename(path, damaged); err != nil {
		return errors.Join(why, err)
	}
	for _, with := range []string{"-wal", "-shm"} {
		_ = os.Rename(path+with, damaged+with) // they may not exist
	}
	log.Error().Err(why).Msgf("the database can't be read: it was moved to %s, and a new one begins", damaged)
	return nil
}
