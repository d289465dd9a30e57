// Package store keeps usage in SQLite by default, in PostgreSQL for several controllers.
//
//	s, err := store.Open(ctx, filepath.Join(dir, store.FileName), store.Options{In: time.Local})
//	s, err := store.Open(ctx, "postgres://genv@db.lab/genv", store.Options{Fleet: "lab", In: time.Local})
//	defer s.Close()
//
// Both have the same tables and statements. An entry is one transaction.
//
// One process writes to a file and others may read, without waiting. kill -9 loses no entry for which Add returned; a
// power failure may lose the last ones.
//
// A server may have several fleets, and a fleet several controllers, one leading at a time. After a lost connection an
// entry may be added again: its ID makes that safe.
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

// Options of a Store. Zero values have the defaults below.
type Options struct {
	// Fleet is its name on a server. A reader may omit it if there is only one.
	Fleet               string
	In                  *time.Location // of its days
	KeepHours, KeepDays time.Duration
	MaxBytes            int64 // of a file. A server is bounded only by the times.
	// Pseudonym, if set, replaces users' names in whole days older than PseudonymsAfter: see usage.Pseudonym.
	Pseudonym       func(user string) string
	PseudonymsAfter time.Duration
}

// The defaults of Options.
const (
	DefaultKeepHours = 35 * 24 * time.Hour
	DefaultKeepDays  = 731 * 24 * time.Hour
	DefaultMaxBytes  = 2 << 30
)

// Store implements usage.Store, safely for concurrent use, and reconnects to a server.
type Store struct {
	dialect
	words   *strings.Replacer
	db      *sql.DB
	options Options
	writes  bool
	timeout time.Duration // per transaction; 0: none
	shared  bool          // there may be other writers
	fleet   int64         // on a server
	name    string        // of the fleet
}

// dialect has what differs in more than words.
type dialect interface {
	// prepare creates or finds tables and fleet.
	prepare(t *tx)
	// facts don't change during the transaction.
	facts(t *tx) databaseFacts
	saveFacts(t *tx)
	// removeNames removes unused names, also from the disk.
	removeNames(ctx context.Context, s *Store) error
	translated(err error) error // to the errors of package usage
}

// databaseFacts exist once per database.
type databaseFacts struct {
	begun    int64 // start of usage
	hours    int64 // start of hourly data
	nameless int64 // users have pseudonyms up to here
	usage.Mark
}

// tx is a transaction. After an error, which it keeps, it does nothing.
type tx struct {
	*sql.Tx
	*Store
	ctx context.Context //nolint:containedctx // of one call
	err error
	databaseFacts
}

var errReadOnly = errors.New("it was opened to read")

// Open opens a database for writing: a file or a server's URL. It creates a missing file; only the user may create
// files in that folder. Errors are those of package usage if the caller can act on them.
func Open(ctx context.Context, place string, options Options) (*Store, error) {
	return open(ctx, place, options, true)
}

// OpenToRead opens a database for Mark and Report. A missing file is fs.ErrNotExist. A PostgreSQL standby will do.
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

// Close closes the database. Commits are kept.
func (s *Store) Close() error { return s.db.Close() }

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

// change is a transaction in a database that may lack tables.
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

// begin tries a server twice, as the connection may have been lost.
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
		_, connecting := errors.AsType[*pgconn.ConnectError](err)
		if err == nil || !s.shared || ctx.Err() != nil || connecting {
			break
		}
	}
	return begun, err
}

// each repeats f in transactions while it returns true.
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

func (t *tx) scan(columns []any, query string, args ...any) {
	if t.err == nil {
		t.err = t.QueryRowContext(t.ctx, t.words.Replace(query), args...).Scan(columns...)
	}
}

func (t *tx) has(table string) bool {
	tables, _ := t.number("SELECT count(*) FROM {tables named} '" + table + "'")
	return tables > 0
}

// number is a query's first value; found is false if NULL.
func (t *tx) number(query string, args ...any) (value int64, found bool) {
	var number sql.NullInt64
	t.scan([]any{&number}, query, args...)
	return number.Int64, number.Valid
}

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
