package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const (
	connectTimeout = 5 * time.Second
	callTimeout    = 60 * time.Second // per transaction
)

// serverBegin makes the server abort before callTimeout, so that a controller that lost its connection blocks no other.
const serverBegin = `SET LOCAL search_path = genv_usage; SET LOCAL lock_timeout = '20s'; SET LOCAL ` +
	`statement_timeout = '50s'; SET LOCAL idle_in_transaction_session_timeout = '50s'`

const keepEntries = "30 days" // for ids. If a server is away for longer, an entry may be added twice.

var errURL = errors.New("not a URL of a PostgreSQL database, such as postgres://genv@db.lab/genv")

// IsServer says whether place is the URL of a PostgreSQL server.
func IsServer(place string) bool {
	return strings.HasPrefix(place, "postgres://") || strings.HasPrefix(place, "postgresql://")
}

// CheckURL says what is wrong with a URL. It refuses passwords: all users see command lines.
func CheckURL(url string) error {
	_, err := parse(url)
	return err
}

func parse(url string) (*pgx.ConnConfig, error) {
	if !IsServer(url) {
		return nil, errURL
	}
	_, rest, _ := strings.Cut(url, "://")
	authority, query, _ := strings.Cut(rest, "?")
	authority, _, _ = strings.Cut(authority, "/")
	if at := strings.LastIndexByte(authority, '@'); strings.Contains(authority[:max(at, 0)], ":") ||
		strings.Contains("&"+query, "&password=") {
		return nil, fmt.Errorf("a password doesn't belong there, where others see it: write it into ~/.pgpass, or a " +
			"file that PGPASSFILE names")
	}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errURL, err)
	}
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, connectTimeout)
	config.RuntimeParams["application_name"] = cmp.Or(config.RuntimeParams["application_name"], "genv")
	return config, nil
}

type server struct{}

func (s *Store) connect(url string) error {
	config, err := parse(url)
	if err != nil {
		return err
	}
	// Statements with lists of rows rarely repeat.
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	s.dialect, s.words, s.shared, s.timeout, s.db = server{}, serverWords(0), true, callTimeout, stdlib.OpenDB(*config)
	return nil
}

const serverVersion = 2 // like fileVersion

// serverSchema has its own schema, as other programs may share the database. Times are Unix times. part is always
// empty: earlier versions had concurrent writers.
func serverSchema() string {
	return fmt.Sprintf(`
CREATE SCHEMA IF NOT EXISTS genv_usage;
CREATE TABLE genv_usage.version (version integer NOT NULL);
INSERT INTO genv_usage.version VALUES (%[1]d);
CREATE TABLE genv_usage.fleets (
	id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, begun bigint NOT NULL DEFAULT 0,
	hours bigint NOT NULL DEFAULT 0, nameless bigint NOT NULL DEFAULT 0);
CREATE TABLE genv_usage.marks (fleet integer, part text, until bigint NOT NULL, ended boolean NOT NULL, PRIMARY KEY
(fleet, part));
CREATE TABLE genv_usage.gaps (fleet integer, part text, since bigint, until bigint NOT NULL, PRIMARY KEY (fleet,
part, since));
CREATE TABLE genv_usage.entries (fleet integer, id text, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (fleet,
id));
CREATE TABLE genv_usage.names (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE);
CREATE TABLE genv_usage.hour_sums (fleet integer, kind integer, start bigint, name integer, %[2]s, PRIMARY KEY
(fleet, kind, start, name));
CREATE TABLE genv_usage.day_sums (fleet integer, kind integer, start bigint, name integer, %[2]s, PRIMARY KEY
(fleet, kind, start, name));
`, serverVersion, columnTypes("bigint"))
}

const serverUpgrade = `
DROP TABLE IF EXISTS hours, days, devices;
ALTER TABLE fleets DROP COLUMN IF EXISTS days;
UPDATE version SET version = 2`

// prepare creates the tables and the fleet; a reader only finds them.
func (server) prepare(t *tx) {
	if t.writes {
		t.run("SELECT pg_advisory_xact_lock(7233173)") // an arbitrary number that other programs don't use
	}
	found := versionOf(t)
	switch {
	case t.err != nil:
		return
	case !t.writes && found == 0:
		t.err = fmt.Errorf("%w: no controller has written to this database", usage.ErrNone)
		return
	case !t.writes:
		findFleet(t)
		return
	case found == 0:
		t.run(serverSchema())
	case found < serverVersion:
		t.run(serverUpgrade)
	}
	t.name = valid(t.options.Fleet)
	t.run("INSERT INTO fleets (name) VALUES ($1) ON CONFLICT DO NOTHING", t.name)
	t.fleet, _ = t.number("SELECT id FROM fleets WHERE name = $1", t.name)
	t.words = serverWords(t.fleet)
}

func findFleet(t *tx) {
	var names []string
	var id int64
	var name string
	t.rows([]any{&id, &name}, func() {
		if name == valid(t.options.Fleet) || t.options.Fleet == "" {
			t.fleet, t.name = id, name
		}
		names = append(names, text.Printable(name))
	}, "SELECT id, name FROM fleets ORDER BY name")
	switch list := strings.Join(names, ", "); {
	case t.err != nil:
	case t.fleet == 0:
		t.err = fmt.Errorf("%w: the fleets in this database are: %s", usage.ErrNone, list)
	case t.options.Fleet == "" && len(names) > 1:
		t.err = fmt.Errorf("%w: say which one of the fleets in this database: %s", usage.ErrNone, list)
	}
	t.words = serverWords(t.fleet)
}

// versionOf returns 0 for a database without tables.
func versionOf(t *tx) (found int64) {
	if t.has("version") {
		found, _ = t.number("SELECT version FROM version")
	}
	if found > serverVersion {
		t.err = fmt.Errorf("%w: its version is %d, and this one knows %d", usage.ErrNewer, found, serverVersion)
	}
	return found
}

// facts locks the fleet, so that writers wait for each other.
func (server) facts(t *tx) (f databaseFacts) {
	query := "SELECT begun, hours, nameless FROM fleets WHERE id = $1"
	if t.writes {
		query += " FOR UPDATE"
	}
	t.scan([]any{&f.begun, &f.hours, &f.nameless}, query, t.fleet)
	if errors.Is(t.err, sql.ErrNoRows) {
		t.err = fmt.Errorf("the fleet %q is gone from the database: start the controller again", t.name)
	}
	t.rows([]any{&f.Until, &f.Ended}, func() {}, "SELECT until, ended FROM marks WHERE {fleet}{part}")
	return f
}

func (server) saveFacts(t *tx) {
	t.run("UPDATE fleets SET begun = $2, hours = $3, nameless = $4 WHERE id = $1", t.fleet, t.begun, t.hours,
		t.nameless)
	if t.databaseFacts.Mark != (usage.Mark{}) {
		t.run("INSERT INTO marks (fleet, part, until, ended) VALUES ({id,}{'',}$1, $2) ON CONFLICT (fleet, part) DO "+
			"UPDATE SET until = excluded.until, ended = excluded.ended", t.Until, t.Ended)
	}
}

// removeNames waits for addNames, which locks the table until its transaction ends.
func (server) removeNames(ctx context.Context, s *Store) error {
	err := s.change(ctx, func(t *tx) {
		t.run("LOCK TABLE names IN SHARE ROW EXCLUSIVE MODE")
		t.run("DELETE FROM names WHERE " + unusedNames)
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = s.db.ExecContext(ctx, "VACUUM genv_usage.names")
	return s.translated(err)
}

// PostgreSQL error codes (https://www.postgresql.org/docs/15/errcodes-appendix.html).
const (
	diskFull            = "53100"
	readOnlyTransaction = "25006"
	noPrivilege         = "42501"
)

// translated also escapes the server's messages.
func (server) translated(err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil:
		return nil
	case !ok:
		return text.Late(err, 0) // the connection, a transaction or the caller timed out
	}
	said := fmt.Errorf("PostgreSQL says: %s (SQLSTATE %s)", text.Printable(e.Message), e.Code)
	switch e.Code {
	case diskFull:
		return fmt.Errorf("%w: %w", usage.ErrFull, said)
	case readOnlyTransaction:
		return fmt.Errorf("%w; the server is a standby, or is set to be read: name the primary, or all servers and "+
			"?target_session_attrs=read-write", said)
	case noPrivilege:
		return fmt.Errorf("%w; the role must own the database, or its schema genv_usage", said)
	}
	return said
}
