package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot"
)

// ids are those that names and devices have in the database, as far as they were asked for.
type ids struct {
	removed int64 // removedFact
	names   map[string]int64
	devices map[device]int64
}

type device struct {
	host, model int64
	index       snapshot.DeviceIndex
}

func newIDs() ids { return ids{names: make(map[string]int64), devices: make(map[device]int64)} }

// checkIDs drops the ids if another process has removed names.
func (s *Store) checkIDs(ctx context.Context, tx *sql.Tx) error {
	removed, err := factOf(ctx, tx, removedFact)
	if err == nil && removed != s.ids.removed {
		s.ids = newIDs()
		s.ids.removed = removed
	}
	return err
}

// statements are what Add needs, prepared.
type statements struct {
	hourRow, dayRow, hourSum, daySum *sql.Stmt
	name, addName, device, addDevice *sql.Stmt
	fact, gap, rollUp, rollUpMonth   *sql.Stmt
	monthSum                         *sql.Stmt
}

func (s *Store) prepare() (*statements, error) {
	a := new(statements)
	var err error
	for text, to := range map[string]**sql.Stmt{
		upsert(hourRows, "start", "device", "user", "eid"): &a.hourRow,
		upsert(dayRows, "start", "device", "user", "eid"):  &a.dayRow,
		upsert(hourSums, "kind", "start", "name"):          &a.hourSum,
		upsert(monthSums, "kind", "start", "name"):         &a.monthSum,
		rollUpMonth:                                                                        &a.rollUpMonth,
		upsert(daySums, "kind", "start", "name"):                                           &a.daySum,
		"SELECT id FROM names WHERE name = ?":                                              &a.name,
		"INSERT INTO names (name) VALUES (?)":                                              &a.addName,
		"SELECT id FROM devices WHERE host = ? AND device = ? AND model = ?":               &a.device,
		"INSERT INTO devices (host, device, model) VALUES (?, ?, ?)":                       &a.addDevice,
		"INSERT INTO facts VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value": &a.fact,
		rollUp: &a.rollUp,
		"INSERT INTO gaps VALUES (?, ?) ON CONFLICT DO UPDATE SET until = max(until, excluded.until)": &a.gap,
	} {
		statement, prepareErr := s.db.Prepare(text)
		*to, err = statement, cmp.Or(err, prepareErr)
	}
	return a, err
}

// The facts that are kept.
const (
	begunFact = "begun" // from when on usage is kept
	// removedFact counts how often names were removed: the ids of names that are remembered may be wrong then.
	removedFact = "removed"
	// namelessFact is up to when users have pseudonyms.
	namelessFact = "nameless"
	untilFact    = "until" // a store.Mark
	endedFact    = "ended"
	hoursFact    = "hours" // from when on hours are kept
	daysFact     = "days"  // up to when the rows of days are written
	// monthsFact is up to when the sums of months are written, if those of all its days are kept.
	monthsFact = "months"
)

var errReadOnly = errors.New("it was opened to read")

// Add keeps an entry.
func (s *Store) Add(ctx context.Context, e *store.Entry) error {
	if s.adding == nil {
		return errReadOnly
	}
	return s.change(ctx, func(tx *sql.Tx) error {
		days, err := factOf(ctx, tx, daysFact)
		months, monthsErr := factOf(ctx, tx, monthsFact)
		nameless, namelessErr := factOf(ctx, tx, namelessFact)
		if err = cmp.Or(err, monthsErr, namelessErr, s.checkIDs(ctx, tx)); err != nil {
			return err
		}
		a := adding{Store: s, tx: tx, bound: make(map[*sql.Stmt]*sql.Stmt), nameless: nameless}
		a.rows(&e.Batch, days)
		a.sums(&e.Batch, months)
		for _, gap := range e.Gaps {
			a.run(s.adding.gap, gap.Since, gap.Until)
		}
		ended := 0
		if e.Ended {
			ended = 1
		}
		a.run(s.adding.fact, untilFact, e.Until)
		a.run(s.adding.fact, endedFact, ended)
		begun, err := factOf(ctx, tx, begunFact)
		if a.err = cmp.Or(a.err, err); begun == 0 {
			a.run(s.adding.fact, begunFact, e.Since)
		}
		return a.err
	})
}

// adding is an Add under way. After an error it does nothing.
type adding struct {
	*Store
	tx    *sql.Tx
	bound map[*sql.Stmt]*sql.Stmt // statements in tx
	// nameless is up to when users have pseudonyms.
	nameless int64
	err      error
}

func (a *adding) in(statement *sql.Stmt) *sql.Stmt {
	if a.bound[statement] == nil {
		a.bound[statement] = a.tx.Stmt(statement)
	}
	return a.bound[statement]
}

func (a *adding) run(statement *sql.Stmt, args ...any) (result sql.Result) {
	if a.err == nil {
		result, a.err = a.in(statement).Exec(args...)
	}
	return result
}

// rows adds rows in the order of their keys: so pages are written one after the other. The rows
// of days before days are written already.
func (a *adding) rows(b *usage.Batch, days int64) {
	keys := slices.AppendSeq(make([]usage.Key, 0, len(b.Rows)), maps.Keys(b.Rows))
	slices.SortFunc(keys, func(a, b usage.Key) int {
		return cmp.Or(cmp.Compare(a.Hour, b.Hour), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Device, b.Device), cmp.Compare(a.User, b.User), cmp.Compare(a.EID, b.EID))
	})
	for i := range keys {
		key := &keys[i]
		amounts := b.Rows[*key]
		args := append([]any{key.Hour, a.deviceID(key), a.userID(string(key.User), key.Hour), shortened(key.EID)}, amountsOf(&amounts)...)
		a.run(a.adding.hourRow, args...)
		if key.Hour < days {
			args[0] = usage.DayOf(key.Hour, a.options.In)
			a.run(a.adding.dayRow, args...)
		}
	}
}

// sums adds sums. Those of months before months are written already.
func (a *adding) sums(b *usage.Batch, months int64) {
	for key := range b.Sums {
		sum := b.Sums[key]
		name := a.nameID
		if key.Kind == usage.ByUser {
			name = func(user string) int64 { return a.userID(user, key.Hour) }
		}
		args := append([]any{int(key.Kind), key.Hour, name(key.Name)}, append(amountsOf(&sum.Amounts), sum.Peak)...)
		a.run(a.adding.hourSum, args...)
		args[1] = usage.DayOf(key.Hour, a.options.In)
		a.run(a.adding.daySum, args...)
		if key.Hour < months {
			args[1] = usage.MonthOf(key.Hour, a.options.In)
			a.run(a.adding.monthSum, args...)
		}
	}
}

// shortened is an environment's id as it is stored: a number takes less room.
func shortened(eid snapshot.EnvID) any {
	if n, err := strconv.ParseInt(string(eid), 10, 64); err == nil && strconv.FormatInt(n, 10) == string(eid) {
		return n
	}
	return string(eid)
}

// userID is the id of a user, or of the pseudonym in an hour whose users have pseudonyms already.
func (a *adding) userID(user string, hour int64) int64 {
	if of := a.options.Pseudonyms.Of; of != nil && hour < a.nameless {
		user = of(user)
	}
	return a.nameID(user)
}

func (a *adding) nameID(name string) int64 {
	id, known := a.ids.names[name]
	if !known {
		id = a.id(a.adding.name, a.adding.addName, name)
		a.ids.names[name] = id
	}
	return id
}

func (a *adding) deviceID(key *usage.Key) int64 {
	d := device{a.nameID(string(key.Host)), a.nameID(key.Model), key.Device}
	id, known := a.ids.devices[d]
	if !known {
		id = a.id(a.adding.device, a.adding.addDevice, d.host, int(d.index), d.model)
		a.ids.devices[d] = id
	}
	return id
}

// id finds an id, or else gives one.
func (a *adding) id(find, add *sql.Stmt, args ...any) (id int64) {
	if a.err != nil {
		return 0
	}
	if a.err = a.in(find).QueryRow(args...).Scan(&id); !errors.Is(a.err, sql.ErrNoRows) {
		return id
	}
	a.err = nil
	if result := a.run(add, args...); a.err == nil {
		id, a.err = result.LastInsertId()
	}
	return id
}

// querier is a database or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// factOf is a fact; 0 if there is none.
func factOf(ctx context.Context, q querier, name string) (value int64, err error) {
	err = q.QueryRowContext(ctx, "SELECT value FROM facts WHERE name = ?", name).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return value, err
}
