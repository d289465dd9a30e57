package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Options are what a Store is like.
type Options struct {
	// Fleet is whose usage it is. Empty, to read, is the only one in the database.
	Fleet string
	In    *time.Location // of its days
	// KeepHours and KeepDays are for how long hours and days are kept.
	KeepHours, KeepDays time.Duration
	// Pseudonyms replace the names of users; none by default.
	Pseudonyms store.Pseudonyms
}

// How long the server may take.
const (
	connectTimeout = 5 * time.Second
	// callTimeout is for a call as a whole. The server gives up by itself a little earlier, so
	// that a controller that is cut off from it doesn't keep others waiting.
	callTimeout = 60 * time.Second
)

// ErrURL says that a URL can't be used.
var ErrURL = errors.New("not a URL of a PostgreSQL database, such as postgres://genv@db.lab/genv")

// Is reports whether a text is the URL of a PostgreSQL server.
func Is(url string) bool {
	return strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
}

// Check says what is wrong with a URL. It connects to nothing. A password is refused: command
// lines are seen by all users of a machine.
func Check(url string) error {
	_, err := parse(url)
	return err
}

func parse(url string) (*pgx.ConnConfig, error) {
	if !Is(url) {
		return nil, ErrURL
	}
	_, rest, _ := strings.Cut(url, "://")
	authority, query, _ := strings.Cut(rest, "?")
	authority, _, _ = strings.Cut(authority, "/")
	if at := strings.LastIndexByte(authority, '@'); strings.Contains(authority[:max(at, 0)], ":") || strings.Contains("&"+query, "&password=") {
		return nil, fmt.Errorf("a password doesn't belong there, where others see it: write it into ~/.pgpass, or a file that PGPASSFILE names")
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, connectTimeout)
	config.RuntimeParams["application_name"] = cmp.Or(config.RuntimeParams["application_name"], "genv")
	return config, nil
}

// Store is a database. It connects again after the server was lost. It is safe for concurrent
// use, one call after the other.
type Store struct {
	config  *pgx.ConnConfig
	options Options
	writes  bool

	mu    sync.Mutex
	conn  *pgx.Conn // nil or closed while there is none
	fleet int
	name  string // of the fleet
}

// Fleet is the name of the fleet.
func (s *Store) Fleet() string { return s.name }

// Open opens a database to write, and creates its tables if they are missing. Errors are those
// of package store, as far as the caller can do something about them.
func Open(ctx context.Context, url string, options Options) (*Store, error) {
	s, err := open(url, options)
	if err != nil {
		return nil, err
	}
	s.writes = true
	return s, s.begin(ctx, s.create)
}

// OpenToRead opens a database for Mark and Report. The server may be a standby, which can't be
// written.
func OpenToRead(ctx context.Context, url string, options Options) (*Store, error) {
	s, err := open(url, options)
	if err != nil {
		return nil, err
	}
	return s, s.begin(ctx, s.find)
}

func open(url string, options Options) (*Store, error) {
	config, err := parse(url)
	if err != nil {
		return nil, err
	}
	options.KeepHours = cmp.Or(options.KeepHours, store.DefaultKeepHours)
	options.KeepDays = cmp.Or(options.KeepDays, store.DefaultKeepDays)
	return &Store{config: config, options: options}, nil
}

// begin connects, and finds or makes what is needed.
func (s *Store) begin(ctx context.Context, prepare func(context.Context, pgx.Tx) error) error {
	err := s.transaction(ctx, prepare)
	if err != nil {
		_ = s.Close() // nothing was written
	}
	return err
}

// Close closes the connection.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	_ = s.conn.Close(ctx) // what was committed is kept
	s.conn = nil
	return nil
}

// limits have the server end what a controller that is cut off has begun.
const limits = `SET LOCAL lock_timeout = '20s'; SET LOCAL statement_timeout = '50s'; SET LOCAL idle_in_transaction_session_timeout = '50s'`

// transaction does something as a whole or not at all.
func (s *Store) transaction(ctx context.Context, f func(context.Context, pgx.Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	tx, err := s.beginTx(ctx)
	if err != nil {
		return translated(err)
	}
	if err := f(ctx, tx); err != nil {
		_ = tx.Rollback(ctx) // if that fails the connection is closed
		return translated(err)
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnsure, translated(err))
	}
	return nil
}

// beginTx begins a transaction. A connection from before may have been lost since.
func (s *Store) beginTx(ctx context.Context) (pgx.Tx, error) {
	if s.conn != nil && !s.conn.IsClosed() {
		if tx, err := s.onConn(ctx); err == nil {
			return tx, nil
		}
	}
	conn, err := pgx.ConnectConfig(ctx, s.config)
	if err != nil {
		return nil, err
	}
	s.conn = conn
	return s.onConn(ctx)
}

// onConn begins a transaction on the connection, which it closes if that fails.
func (s *Store) onConn(ctx context.Context) (pgx.Tx, error) {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	if s.writes {
		options = pgx.TxOptions{}
	}
	tx, err := s.conn.BeginTx(ctx, options)
	if err == nil {
		_, err = tx.Exec(ctx, limits)
	}
	if err != nil {
		_ = s.conn.Close(ctx) // nothing was done in it
	}
	return tx, err
}

// create makes the tables of a new database, and enters the fleet.
func (s *Store) create(ctx context.Context, tx pgx.Tx) error {
	// Two that begin at the same time: the number is any that others don't use.
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(7233173)"); err != nil {
		return err
	}
	found, err := versionOf(ctx, tx)
	if err != nil {
		return err
	}
	if found == 0 {
		if _, err := tx.Exec(ctx, schema); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, "INSERT INTO genv_usage.fleets (name) VALUES ($1) ON CONFLICT DO NOTHING", valid(s.options.Fleet))
	if err != nil {
		return err
	}
	return tx.QueryRow(ctx, "SELECT id, name FROM genv_usage.fleets WHERE name = $1", valid(s.options.Fleet)).Scan(&s.fleet, &s.name)
}

// find finds the fleet.
func (s *Store) find(ctx context.Context, tx pgx.Tx) error {
	found, err := versionOf(ctx, tx)
	if err != nil {
		return err
	}
	if found == 0 {
		return fmt.Errorf("%w: no controller has written to this database", store.ErrNone)
	}
	rows, err := tx.Query(ctx, "SELECT id, name FROM genv_usage.fleets ORDER BY name")
	if err != nil {
		return err
	}
	var names []string
	var id int
	var name string
	_, err = pgx.ForEachRow(rows, []any{&id, &name}, func() error {
		if name == valid(s.options.Fleet) || s.options.Fleet == "" {
			s.fleet, s.name = id, name
		}
		names = append(names, text.Printable(name))
		return nil
	})
	switch {
	case err != nil:
		return err
	case s.fleet == 0:
		return fmt.Errorf("%w: the fleets in this database are: %s", store.ErrNone, strings.Join(names, ", "))
	case s.options.Fleet == "" && len(names) > 1:
		return fmt.Errorf("%w: say which one of the fleets in this database: %s", store.ErrNone, strings.Join(names, ", "))
	}
	return nil
}

// versionOf is the version of the schema; 0 for a database without tables.
func versionOf(ctx context.Context, tx pgx.Tx) (found int, err error) {
	var there bool
	if err := tx.QueryRow(ctx, "SELECT to_regclass('genv_usage.version') IS NOT NULL").Scan(&there); err != nil || !there {
		return 0, err
	}
	if err := tx.QueryRow(ctx, "SELECT version FROM genv_usage.version").Scan(&found); err != nil {
		return 0, err
	}
	if found > version {
		return 0, fmt.Errorf("%w: its version is %d, and this one knows %d", store.ErrNewer, found, version)
	}
	return found, nil
}

// valid is a text as PostgreSQL takes it: UTF-8 without zero bytes.
func valid(name string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(name, "\uFFFD"), "\x00", "\uFFFD")
}

// The errors of PostgreSQL that mean something here
// (https://www.postgresql.org/docs/15/errcodes-appendix.html).
const (
	diskFull            = "53100"
	readOnlyTransaction = "25006"
	noPrivilege         = "42501"
)

// translated adds the errors of package store, and shows what the server says escaped.
func translated(err error) error {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return err
	}
	said := &serverError{text: text.Printable(e.Message), code: e.Code, err: err}
	switch e.Code {
	case diskFull:
		return fmt.Errorf("%w: %w", store.ErrFull, said)
	case readOnlyTransaction:
		return fmt.Errorf("%w; the server is a standby, or is set to be read: name the primary, or all servers and ?target_session_attrs=read-write", said)
	case noPrivilege:
		return fmt.Errorf("%w; the role must own the database, or its schema genv_usage", said)
	}
	return said
}

// serverError is an answer of the server.
type serverError struct {
	text, code string
	err        error
}

func (e *serverError) Error() string {
	return fmt.Sprintf("PostgreSQL says: %s (SQLSTATE %s)", e.text, e.code)
}
func (e *serverError) Unwrap() error { return e.err }
