package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/servers"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// fleets numbers the fleets in a database, so that each test has one of its own.
var fleets atomic.Int64

func options() store.Options {
	return store.Options{Fleet: fmt.Sprintf("fleet '%d'\x00", fleets.Add(1)), In: time.UTC}
}

func open(t *testing.T, s *servers.PostgresServer, o store.Options) *store.Store {
	return database{s.URL(), o}.open(t)
}

// TestServer has one server for all tests: to make one takes seconds.
func TestServer(t *testing.T) {
	server := servers.StartPostgres(t, "")
	for _, test := range []struct {
		name string
		run  func(*testing.T, *servers.PostgresServer)
	}{
		{"what can't be used", unusable},
		{"a store", theStore},
		{"an entry counts once", anEntryCountsOnce},
		{"two leaders", twoLeaders},
		{"several writers", severalWriters},
		{"names that are removed meanwhile", namesRemovedMeanwhile},
		{"an older version", anOlderVersion},
		{"it is killed", itIsKilled},
		{"it is cut off", itIsCutOff},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, server) })
	}
}

func theStore(t *testing.T, server *servers.PostgresServer) {
	testStore(t, func(t *testing.T) database {
		o := options()
		o.In = zone(t)
		return database{server.URL(), o}
	})
}

func total(t *testing.T, s *store.Store) *usage.Report {
	return reportOf(t, s, usage.Query{By: usage.ByUser, Since: firstHour, Until: firstHour + 1000*3600})
}

func attached(entries ...*usage.Entry) (sum int64) {
	for _, e := range entries {
		for key := range e.Sums {
			if key.Kind == usage.OfAll {
				sum += e.Sums[key].Attached
			}
		}
	}
	return sum
}

// An entry that is added again, since it wasn't known whether it was kept, counts once: by the same
// writer, or after a restart.
func anEntryCountsOnce(t *testing.T, server *servers.PostgresServer) {
	o := options()
	first, second := entryOf(firstHour, 1), entryOf(firstHour, 2)
	first.ID, second.ID = "a", "b"
	s := open(t, server, o)
	for _, e := range []*usage.Entry{first, first, second} {
		require.NoError(t, s.Add(t.Context(), e))
	}
	require.NoError(t, open(t, server, o).Add(t.Context(), first))
	require.Equal(t, attached(first, second), total(t, s).Total.Attached)
	other := open(t, server, options())
	require.NoError(t, other.Add(t.Context(), first), "an id is that of a fleet")
	require.Equal(t, attached(first), total(t, other).Total.Attached)
}

// Controllers that lead one after the other write to the same fleet. What the first one writes
// late ends the gap that the second one found.
func twoLeaders(t *testing.T, server *servers.PostgresServer) {
	o := options()
	former, next := open(t, server, o), open(t, server, o)
	entry := func(since, until int64, gaps ...usage.Gap) *usage.Entry {
		e := entryOf(firstHour, 1)
		e.Since, e.Until, e.Gaps = firstHour+since, firstHour+until, gaps
		return e
	}
	require.NoError(t, former.Add(t.Context(), entry(0, 60)))
	require.NoError(t, next.Add(t.Context(), entry(130, 190, usage.Gap{Since: firstHour + 60, Until: firstHour + 130})))
	require.EqualValues(t, 70, total(t, next).Missing)
	require.NoError(t, former.Add(t.Context(), entry(60, 120)), "late")
	require.EqualValues(t, 10, total(t, next).Missing)
	require.EqualValues(t, firstHour+190, markOf(t, next).Until, "it doesn't go back")
}

// Controllers that write to the same fleet at the same time lose nothing of each other's.
func severalWriters(t *testing.T, server *servers.PostgresServer) {
	o := options()
	var all []*usage.Entry
	done := make(chan error, 4)
	for writer := range 4 {
		s := open(t, server, o)
		var own []*usage.Entry
		for i := range 10 {
			e := entryOf(firstHour+int64(i)*3600, uint64(100*writer+i))
			e.ID = fmt.Sprint(writer, "-", i)
			if writer == 1 && i == 0 {
				e.Gaps = []usage.Gap{{Since: firstHour - 100, Until: firstHour}, {Since: firstHour + 100*3600, Until: firstHour + 100*3600 + 50}}
			}
			own = append(own, e)
		}
		all = append(all, own...)
		go func() {
			for _, e := range own {
				if err := s.Add(t.Context(), e); err != nil {
					done <- err
					return
				}
				if _, err := s.Tidy(t.Context(), time.Unix(e.Until, 0)); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 4 {
		require.NoError(t, <-done)
	}
	r := total(t, open(t, server, o))
	require.Equal(t, attached(all...), r.Total.Attached)
	require.EqualValues(t, 50, r.Missing)
	require.EqualValues(t, firstHour+10*3600, markOf(t, database{server.URL(), o}.openToRead(t)).Until)
}

// A database of version 1 is read as it is. The next writer removes the tables that nothing reads, of all fleets, and
// reports stay the same.
func anOlderVersion(t *testing.T, server *servers.PostgresServer) {
	o, e := options(), entryOf(firstHour, 1)
	require.NoError(t, open(t, server, o).Add(t.Context(), e))
	const rows = `(fleet integer, start bigint, device integer, "user" integer, eid text, attached bigint NOT NULL, PRIMARY KEY (fleet, start, device, "user", eid));`
	server.Do(`SET search_path = genv_usage; UPDATE version SET version = 1; ALTER TABLE fleets ADD days bigint NOT NULL DEFAULT 0;
		CREATE TABLE devices (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, host integer NOT NULL, device integer NOT NULL, model integer NOT NULL, UNIQUE (host, device, model));
		CREATE TABLE hours ` + rows + "CREATE TABLE days " + rows + `INSERT INTO hours SELECT fleet, start, 1, name, 'x', attached FROM hour_sums WHERE kind = 1`)
	reader := database{server.URL(), o}.openToRead(t)
	before := total(t, reader)
	require.Equal(t, attached(e), before.Total.Attached)
	require.Empty(t, hoursIn(t, reader))
	require.NoError(t, open(t, server, options()).Add(t.Context(), entryOf(firstHour, 2)))
	require.Empty(t, hoursIn(t, open(t, server, o)))
	require.Equal(t, before, total(t, reader), "one that is open stays so")
	require.Equal(t, before, total(t, open(t, server, o)))
	server.Do(`DO $$ BEGIN
		IF (SELECT version FROM genv_usage.version) <> 2 OR EXISTS (SELECT 1 FROM information_schema.columns
			WHERE table_schema = 'genv_usage' AND (table_name IN ('hours', 'days', 'devices') OR table_name = 'fleets' AND column_name = 'days'))
			THEN RAISE 'there is something left'; END IF; END $$`)
}

// The server is killed while entries are written: each is there once, as a whole, and after the
// restart the same Store goes on.
func itIsKilled(t *testing.T, server *servers.PostgresServer) {
	s := open(t, server, options())
	var all []*usage.Entry
	var failures int
	for i := range 12 {
		e := entryOf(firstHour+int64(i)*3600, uint64(i))
		e.ID = fmt.Sprint(i)
		all = append(all, e)
		killed := make(chan struct{})
		go func() {
			if i%3 == 2 {
				time.Sleep(time.Duration(i*i) * 200 * time.Microsecond)
				server.Kill()
			}
			close(killed)
		}()
		err := s.Add(t.Context(), e)
		<-killed
		if i%3 == 2 {
			server.Restart()
		}
		for ; err != nil; err = s.Add(t.Context(), e) {
			failures++
			require.Less(t, failures, 20)
		}
	}
	require.Equal(t, attached(all...), total(t, s).Total.Attached)
	t.Logf("%d calls failed", failures)
}

// Another controller removes the names that an entry has: it waits for that, and adds them again.
func namesRemovedMeanwhile(t *testing.T, server *servers.PostgresServer) {
	s := open(t, server, options())
	first, second := entryOf(firstHour, 1), entryOf(firstHour, 1)
	for _, e := range []*usage.Entry{first, second} { // names that other tests don't have
		e.Sums = usage.Sums{{Kind: usage.OfUser, Hour: firstHour, Name: "removed"}: {Peak: 1}}
	}
	require.NoError(t, s.Add(t.Context(), first))
	db := proctest.Try(sql.Open("pgx", server.URL())).OK(t)
	defer db.Close()
	remover := proctest.Try(db.BeginTx(t.Context(), nil)).OK(t)
	defer func() { _ = remover.Rollback() }() // it was committed
	proctest.Try(remover.Exec("LOCK TABLE genv_usage.names IN SHARE ROW EXCLUSIVE MODE; DELETE FROM genv_usage.names WHERE name = 'removed'")).OK(t)
	added := make(chan error, 1)
	go func() { added <- s.Add(t.Context(), second) }()
	require.Eventually(t, func() bool {
		var waiting int
		return db.QueryRow("SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waiting) == nil && waiting > 0
	}, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, remover.Commit())
	require.NoError(t, <-added)
	require.Equal(t, "removed", total(t, s).Rows[0].Key)
}

// Nothing comes back from the server, as when packets are dropped: a call ends in its time, and
// an entry counts once, whether or not it had arrived.
func itIsCutOff(t *testing.T, server *servers.PostgresServer) {
	o := options()
	other := open(t, server, o)
	var all []*usage.Entry
	for i, lose := range []func(*testfleet.Cut){(*testfleet.Cut).LoseAnswers, (*testfleet.Cut).LoseRequests, (*testfleet.Cut).Interrupt} {
		way := testfleet.StartCut(t, server.Address)
		s := proctest.Try(store.Open(t.Context(), server.At(way.Addresses()[0]), o)).OK(t)
		e := entryOf(firstHour+int64(i)*3600, uint64(i))
		e.ID = fmt.Sprint(i)
		all = append(all, e)
		lose(way)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		begun := time.Now()
		err := s.Add(ctx, e)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "no answer in time")
		require.NotContains(t, err.Error(), "deadline")
		cancel()
		require.Less(t, time.Since(begun), 30*time.Second)
		way.Mend() // the server learns that the connection is over
		require.NoError(t, other.Add(t.Context(), e))
		require.NoError(t, s.Add(t.Context(), e))
		require.NoError(t, s.Close())
	}
	require.Equal(t, attached(all...), total(t, other).Total.Attached)
}

// What can't be used is an error that says what to do, and never the password.
func unusable(t *testing.T, server *servers.PostgresServer) {
	read := func(url string, o store.Options) error {
		s, err := store.OpenToRead(t.Context(), url, o)
		if err == nil {
			require.NoError(t, s.Close())
		}
		return err
	}
	require.ErrorIs(t, read(server.URL(), store.Options{}), usage.ErrNone, "nothing was written")
	o, other := options(), options()
	open(t, server, o)
	require.NoError(t, read(server.URL(), store.Options{}), "the only one")
	open(t, server, other)
	require.ErrorContains(t, read(server.URL(), store.Options{}), "say which one of the fleets")
	require.ErrorContains(t, read(server.URL(), store.Options{Fleet: "none"}), "the fleets in this database are: fleet '")
	require.NoError(t, read(server.URL(), o))

	wrong := strings.Replace(server.URL(), "genv@", "genv:wrong-word@", 1)
	_, err := store.Open(t.Context(), wrong, o)
	require.ErrorContains(t, err, "~/.pgpass")
	require.NotContains(t, err.Error(), "wrong-word")
	_, err = store.Open(t.Context(), strings.Replace(server.URL(), "passfile=", "passfile=/dev/null", 1), o)
	require.ErrorContains(t, err, "genv")
	require.ErrorContains(t, read("postgres://genv@127.0.0.1:1/x", o), "refused")

	server.Kill()
	server.Restart("default_transaction_read_only=on")
	require.NoError(t, read(server.URL(), o))
	require.ErrorContains(t, proctest.Try(store.Open(t.Context(), server.URL(), o)).Err, "name the primary")
	server.Kill()
	server.Restart()
	server.Do("UPDATE genv_usage.version SET version = 99")
	defer server.Do("DROP SCHEMA genv_usage CASCADE")
	require.ErrorIs(t, proctest.Try(store.Open(t.Context(), server.URL(), o)).Err, usage.ErrNewer)
	require.ErrorIs(t, read(server.URL(), o), usage.ErrNewer)
}

// A server that takes the connection and says nothing.
func TestASilentServer(t *testing.T) {
	silent := proctest.Try(net.Listen("tcp", "127.0.0.1:0")).OK(t)
	defer silent.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := store.OpenToRead(ctx, "postgres://genv@"+silent.Addr().String()+"/genv?sslmode=disable", store.Options{})
	require.ErrorContains(t, err, "no answer in time")
	require.NotContains(t, err.Error(), "deadline")
}

func TestCheck(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://genv@db.lab/genv": "", "postgresql://a,b/genv?target_session_attrs=read-write": "",
		"postgres://": "", "sqlite:/x": "not a URL", "postgres://genv:pw@db/x": "a password doesn't belong there",
		"postgres://db/x?password=pw": "a password doesn't belong there", "postgres://db/x?sslmode=disable&password=pw": "a password doesn't belong there",
		"postgres://db:port/x": "not a URL", "postgres://db/x?sslmode=perhaps": "sslmode",
	} {
		err := store.CheckURL(url)
		if want == "" {
			require.NoError(t, err, url)
			continue
		}
		require.ErrorContains(t, err, want, url)
		require.NotContains(t, err.Error(), "pw", url)
	}
}
