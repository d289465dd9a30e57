package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
)

// FileName is the name of the database in the folder of a controller.
const FileName = "usage.db"

// Options are what a Store is like.
type Options struct {
	In *time.Location // of its days
	// KeepHours and KeepDays are for how long hours and days are kept; 0 for those of package
	// store.
	KeepHours, KeepDays time.Duration
	// MaxBytes is how big the file may get; 0 for DefaultMaxBytes.
	MaxBytes int64
	// Pseudonyms replace the names of users; none by default.
	Pseudonyms store.Pseudonyms
}

// DefaultMaxBytes is how big a file may get by default.
const DefaultMaxBytes = 2 << 30

// Store is a database.
type Store struct {
	db      *sql.DB
	options Options
	ids     ids
	adding  *statements // nil for one that only reads
}

// Open opens a database, and creates it if it is missing. It must be in a folder in which only
// its user may create files. Errors are those of package store, as far as the caller can do
// something about them.
func Open(path string, options Options) (*Store, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600) // SQLite's other files get its mode
	if err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	options.KeepHours = cmp.Or(options.KeepHours, store.DefaultKeepHours)
	options.KeepDays = cmp.Or(options.KeepDays, store.DefaultKeepDays)
	options.MaxBytes = cmp.Or(options.MaxBytes, DefaultMaxBytes)
	s, err := open(path, options, "immediate", "journal_mode(wal)", "synchronous(full)", "journal_size_limit(67108864)",
		fmt.Sprintf("max_page_count(%d)", max(options.MaxBytes/pageSize, 64)))
	if err != nil {
		return nil, err
	}
	if err = s.create(); err == nil {
		s.adding, err = s.prepare()
	}
	if err != nil {
		_ = s.db.Close() // nothing was written
		return nil, translated(err)
	}
	return s, nil
}

// pageSize is SQLite's.
const pageSize = 4096

// OpenToRead opens a database for Mark and Report. One that doesn't exist is fs.ErrNotExist.
func OpenToRead(path string, in *time.Location) (*Store, error) {
	info, err := os.Lstat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Size() == 0) {
		err = &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, err
	}
	s, err := open(path, Options{In: in}, "deferred", "query_only(1)")
	if err != nil {
		return nil, err
	}
	if _, err = s.versionOf(); err != nil {
		_ = s.db.Close() // nothing was written
		return nil, translated(err)
	}
	return s, nil
}

// open opens a database. begin is how its transactions begin, unless they only read: one that is to write and
// begins deferred would fail, without waiting, if another process wrote meanwhile.
func open(path string, options Options, begin string, pragmas ...string) (*Store, error) {
	query := url.Values{"_txlock": {begin}, "_pragma": append([]string{"busy_timeout(10000)", "temp_store(memory)", "cache_size(-16000)"}, pragmas...)}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return &Store{db: db, options: options, ids: newIDs()}, nil
}

// create makes the tables of a new database, and brings an older one up to date.
func (s *Store) create() error {
	found, err := s.versionOf()
	if err != nil || found == version {
		return err
	}
	return s.change(context.Background(), func(tx *sql.Tx) error {
		if found == 0 {
			_, err := tx.Exec(schema())
			return err
		}
		if found == 1 {
			if err := rowsOfDaysAreThere(tx, s.options.In); err != nil {
				return err
			}
		}
		_, err := tx.Exec(upgrade())
		return err
	})
}

// rowsOfDaysAreThere notes that the rows of the last day are written.
func rowsOfDaysAreThere(tx *sql.Tx, in *time.Location) error {
	until, err := factOf(context.Background(), tx, untilFact)
	if err == nil && until > 0 {
		_, err = tx.Exec("INSERT INTO facts VALUES (?, ?)", daysFact, usage.NextDay(until, in))
	}
	return err
}

// versionOf is the version of the schema; 0 for a database without tables.
func (s *Store) versionOf() (found int, err error) {
	if err := s.db.QueryRow("PRAGMA user_version").Scan(&found); err != nil {
		return 0, err
	}
	if found > version {
		return 0, fmt.Errorf("%w: its version is %d, and this one knows %d", store.ErrNewer, found, version)
	}
	return found, nil
}

// change does something as a whole or not at all.
func (s *Store) change(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return translated(err)
	}
	if err = f(tx); err == nil {
		err = tx.Commit()
	}
	if err != nil {
		_ = tx.Rollback() // SQLite has done that, if it can't go on
		s.ids = newIDs()  // those that were given in it
	}
	return translated(err)
}

// Close closes the database.
func (s *Store) Close() error { return s.db.Close() }

// translated adds the errors of package store.
func translated(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", store.ErrDamaged, err)
	}
	return err
}
