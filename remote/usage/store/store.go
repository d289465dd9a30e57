// Package store keeps usage in a database: by default in an SQLite database, a single file, and for
// controllers that share one history on a PostgreSQL server.
//
//	s, err := store.Open(ctx, filepath.Join(dir, store.FileName), store.Options{In: time.Local})
//	s, err := store.Open(ctx, "postgres://genv@db.lab/genv", store.Options{Fleet: "lab", In: time.Local})
//	defer s.Close()
//
// Both have the same tables and statements. An entry is one transaction.
//
// One process writes to a file. Others may read meanwhile, and neither waits for the other. After kill -9 all entries
// are there that Add returned for; after a power failure the last ones may be missing.
//
// A database on a server may have several fleets, and a fleet several controllers of which one leads after the other.
// If the server is lost while it commits, the entry may be added again: it has an id.
package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-3119e985/genv/remote/usage"
)

// Options are what a Store is like.
type Options struct {
	// Fleet is the name of the fleet, on a server. Empty, to read, is the only one in the database.
	Fleet string
	In    *time.Location // of its days
	// KeepHours and KeepDays are for how long hours and days are kept; 0 for the defaults.
	KeepHours, KeepDays time.Duration
	// MaxBytes is how big a file may get; 0 for DefaultMaxBytes. The size on a server is bounded by the times
	// alone: its administrator sees to the disk.
	MaxBytes int64
	// Pseudonyms replace the names of users; none by default.
	Pseudonyms Pseudonyms
}

// For how long hours and days are kept, and how big a file may get, unless something else is asked for.
const (
	DefaultKeepHours = 35 * 24 * time.Hour
	DefaultKeepDays  = 731 * 24 * time.Hour
	DefaultMaxBytes  = 2 << 30
)

// Pseudonyms has Tidy replace names of users that are old. The zero Pseudonyms keeps names.
type Pseudonyms struct {
	// After is the age at which the users of whole days get pseudonyms.
	After time.Duration
	// Of is the pseudonym of a user, as of usage.Pseudonym.
	Of func(user string) string
}

// Store is a database. It is safe for concurrent use, one call after the other. A connection to a
// server is made again after it was lost. It implements usage.Store.
type Store struct {
	dialect
	words   *strings.Replacer // of the driver
	db      *sql.DB
	options Options
	writes  bool
	timeout time.Duration // of a transaction; 0 for none
	shared  bool          // there may be other writers
	fleet   int64         // on a server
	name    string        // of the fleet
}

// dialect is where SQLite and PostgreSQL differ in more than words.
type dialect interface {
	// prepare makes or finds the tables, and the fleet.
	prepare(t *tx)
	// facts are those of the database, of which no other writer changes them during the transaction.
	facts(t *tx) databaseFacts
	saveFacts(t *tx)
	// removeNames removes the names that no row has any more, and what is left of them.
	removeNames(ctx context.Context, s *Store) error
	translated(err error) error // with the errors of package usage
}

// databaseFacts are what a database has only once.
type databaseFacts struct {
	begun    int64 // from when on usage is kept
	hours    int64 // from when on hours are kept
	nameless int64 // up to when users have pseudonyms
	usage.Mark
}

// tx is a transaction. After an error, which it keeps, it does nothing and finds nothing.
type tx struct {
	*sql.Tx
	*Store
	ctx context.Context //nolint:containedctx // of one call
	err error
	databaseFacts
}

var errReadOnly = errors.New("it was opened to read")

// Open opens a database to write: the file of a path, or a server's by its URL. It is created if it
// is missing. A file must be in a folder in which only its user may create files. Errors are those of package usage, as
// far as the caller can do something about them.
func Open(ctx context.Context, place string, options Options) (*Store, error) {
	return open(ctx, place, options, true)
}

// OpenToRead opens a database for Mark and Report. A file that doesn't exist is fs.ErrNotExist. A server may be a
// standby, which can't be written.
func OpenToRead(ctx context.Context, place string, options Options) (*Store, error) {
	return open(ctx, place, options, false)
}

func open(ctx context.Context, place string, options Options, writes bool) (*Store, error) {
	options.KeepHours = cmp.Or(options.KeepHours, DefaultKeepHours)
	options.KeepDays = cmp.Or(options.KeepDays, DefaultKeepDays)
	options.MaxBytes = cmp.Or(options.MaxBytes, DefaultMaxBytes)
	s := &Store{options: options, writes: writes}
	var err error
	if IsServer(place) {
		err = s.connect(place)
	} else {
		err = s.openFile(place)
	}
	if err != nil {
		return nil, err
	}
	s.db.SetMaxOpenConns(1)
	if err := s.change(ctx, s.prepare); err != nil {
		_ = s.db.Close() // nothing was written
		return nil, err
	}
	return s, nil
}

// Fleet is the name of the fleet on a server.
func (s *Store) Fleet() string { return s.name }

// Close closes the database. What was committed is kept.
func (s *Store) Close() error { return s.db.Close() }

// transaction does something as a whole or not at all.
func (s *Store) transaction(ctx context.Context, f func(*tx)) error {
	return s.change(ctx, func(t *tx) {
		t.databaseFacts = s.facts(t)
		before := t.databaseFacts
		if t.err == nil {
			f(t)
		}
		if t.databaseFacts != before {
			s.saveFacts(t)
		}
	})
}

// change is a transaction in a database that may have no tables.
func (s *Store) change(ctx context.Context, f func(*tx)) error {
	if s.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
		defer cancel()
	}
	begun, err := s.begin(ctx)
	if err != nil {
		return s.translated(err)
	}
	t := &tx{Tx: begun, Store: s, ctx: ctx}
	if f(t); t.err != nil {
		_ = begun.Rollback() // if that fails, the connection is closed
		return s.translated(t.err)
	}
	return s.translated(begun.Commit())
}

// begin begins a transaction. A connection to a server from before may have been lost since: it is tried twice.
func (s *Store) begin(ctx context.Context) (begun *sql.Tx, err error) {
	options := &sql.TxOptions{ReadOnly: !s.writes}
	if s.shared && !s.writes {
		options.Isolation = sql.LevelRepeatableRead
	}
	for range 2 {
		begun, err = s.db.BeginTx(ctx, options)
		if err == nil && s.shared {
			if _, err = begun.ExecContext(ctx, serverBegin); err != nil {
				_ = begun.Rollback() // nothing was done in it
			}
		}
		connecting := new(pgconn.ConnectError)
		if err == nil || !s.shared || ctx.Err() != nil || errors.As(err, &connecting) {
			break
		}
	}
	return begun, err
}

// each does something in one transaction after the other, until nothing is to be done.
func (s *Store) each(ctx context.Context, f func(*tx) (done bool)) (some bool, err error) {
	for {
		done := false
		if err = s.transaction(ctx, func(t *tx) { done = f(t) }); err != nil || !done {
			return some, err
		}
		some = true
	}
}

func (t *tx) run(statement string, args ...any) {
	if t.err == nil {
		_, t.err = t.ExecContext(t.ctx, t.words.Replace(statement), args...)
	}
}

// scan reads the first row of a query.
func (t *tx) scan(columns []any, query string, args ...any) {
	if t.err == nil {
		t.err = t.QueryRowContext(t.ctx, t.words.Replace(query), args...).Scan(columns...)
	}
}

// number is the first column of the first row of a query; found is false if it is NULL.
func (t *tx) number(query string, args ...any) (value int64, found bool) {
	var number sql.NullInt64
	t.scan([]any{&number}, query, args...)
	return number.Int64, number.Valid
}

// rows calls f for each row of a query, which is scanned to columns.
func (t *tx) rows(columns []any, f func(), query string, args ...any) {
	if t.err != nil {
		return
	}
	found, err := t.QueryContext(t.ctx, t.words.Replace(query), args...)
	if err != nil {
		t.err = err
		return
	}
	defer found.Close()
	for found.Next() {
		if t.err = found.Scan(columns...); t.err != nil {
			return
		}
		f()
	}
	t.err = found.Err()
}
