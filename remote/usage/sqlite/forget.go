package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/remote/usage"
)

func tables() []string { return []string{hourRows, dayRows, hourSums, daySums, monthSums} }

// RowsOf implements store.Forgetter.
func (s *Store) RowsOf(ctx context.Context, users ...string) (rows int64, err error) {
	for _, user := range users {
		for _, table := range tables() {
			var n int64
			err := s.db.QueryRowContext(ctx, fmt.Sprintf("SELECT count(*) FROM %s WHERE %s (SELECT id FROM names WHERE name = ?)", table, ofUser(table, "=")), user).Scan(&n)
			if err != nil {
				return 0, translated(err)
			}
			rows += n
		}
	}
	return rows, nil
}

// Forget implements store.Forgetter. It changes a day at a time, so that another process that adds entries waits
// for a moment only.
func (s *Store) Forget(ctx context.Context, users ...string) error {
	if s.adding == nil {
		return errReadOnly
	}
	to := make(map[string]string)
	for _, user := range users {
		to[user] = string(usage.Forgotten)
	}
	first, last, err := s.extent(ctx)
	if err != nil {
		return err
	}
	for day := usage.DayOf(first, s.options.In); day <= last; day = usage.NextDay(day, s.options.In) {
		err := s.change(ctx, func(tx *sql.Tx) error {
			if err := s.noteRenamed(ctx, tx, to); err != nil {
				return err
			}
			return renameIn(ctx, tx, day, usage.NextDay(day, s.options.In))
		})
		if err != nil {
			return err
		}
	}
	if err := s.removeNames(ctx); err != nil {
		return err
	}
	return s.emptyLog(ctx)
}

// extent is from when to when there are rows.
func (s *Store) extent(ctx context.Context) (first, last int64, err error) {
	var all []string
	for _, table := range tables() {
		kind := ""
		if hasSums(table) {
			kind = fmt.Sprintf(" WHERE kind = %d", usage.ByUser)
		}
		all = append(all, fmt.Sprintf("SELECT min(start) AS first, max(start) AS last FROM %s%s", table, kind))
	}
	var from, until sql.NullInt64
	err = s.db.QueryRowContext(ctx, "SELECT min(first), max(last) FROM ("+strings.Join(all, " UNION ALL ")+")").Scan(&from, &until)
	if !until.Valid {
		return 0, -1, translated(err)
	}
	return from.Int64, until.Int64, translated(err)
}

// noteRenamed fills a table with the ids of users and of the names that they are to have. Users who aren't
// known are left out.
func (s *Store) noteRenamed(ctx context.Context, tx *sql.Tx, names map[string]string) error {
	if _, err := tx.ExecContext(ctx, "CREATE TEMP TABLE IF NOT EXISTS renamed (old INTEGER PRIMARY KEY, new INTEGER NOT NULL); DELETE FROM renamed"); err != nil {
		return err
	}
	a := adding{Store: s, tx: tx, bound: make(map[*sql.Stmt]*sql.Stmt)}
	for user, name := range names {
		var old int64
		err := a.in(s.adding.name).QueryRowContext(ctx, user).Scan(&old)
		if errors.Is(err, sql.ErrNoRows) || name == user {
			continue
		}
		// the ids that are remembered may be those of names that another process has removed
		to := a.id(s.adding.name, s.adding.addName, name)
		if err = cmp.Or(err, a.err); err == nil {
			_, err = tx.ExecContext(ctx, "INSERT INTO renamed VALUES (?, ?)", old, to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// renameIn gives the rows of a time that users have who are noted as renamed to their new names.
func renameIn(ctx context.Context, tx *sql.Tx, since, until int64) error {
	for _, table := range tables() {
		keys, values := "start, device, user, eid", "start, device, new, eid"
		if hasSums(table) {
			keys, values = "kind, start, name", "kind, start, new"
		}
		during := ofUser(table, "IN") + " (SELECT old FROM renamed) AND start >= ?1 AND start < ?2"
		// CROSS JOIN reads the rows once, not once for each user.
		_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (%s, %s) SELECT %s, %s FROM %s CROSS JOIN renamed ON %s old WHERE %s ON CONFLICT DO UPDATE SET %s",
			table, keys, amounts(table), values, amounts(table), table, ofUser(table, "="), during, addition(table)), since, until)
		if err == nil {
			_, err = tx.ExecContext(ctx, "DELETE FROM "+table+" WHERE "+during, since, until)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ofUser is a condition about the user of a row; the operand follows.
func ofUser(table, operator string) string {
	if hasSums(table) {
		return fmt.Sprintf("kind = %d AND name %s", usage.ByUser, operator)
	}
	return "user " + operator
}

// unused are the names that no row has any more.
const unused = "id NOT IN (SELECT host FROM devices UNION SELECT model FROM devices " +
	"UNION SELECT name FROM hour_sums UNION SELECT name FROM day_sums UNION SELECT name FROM month_sums)"

// removeNames removes the names that no row has any more. The others are written again, and the pages with all of them
// overwritten: SQLite leaves copies in pages that it has divided.
func (s *Store) removeNames(ctx context.Context) error {
	if _, err := s.db.ExecContext(ctx, "PRAGMA secure_delete = 1"); err != nil {
		return translated(err)
	}
	defer func() { _, _ = s.db.ExecContext(ctx, "PRAGMA secure_delete = 0") }() // it only costs time
	return s.change(ctx, func(tx *sql.Tx) error {
		var found bool
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM names WHERE "+unused+")").Scan(&found); err != nil || !found {
			return err
		}
		s.ids = newIDs()
		_, err := tx.ExecContext(ctx, "DROP TABLE IF EXISTS temp.kept; CREATE TEMP TABLE kept AS SELECT id, name FROM names WHERE NOT ("+unused+
			"); DELETE FROM names; INSERT INTO names SELECT id, name FROM temp.kept; DROP TABLE temp.kept")
		if err == nil {
			_, err = tx.ExecContext(ctx, "INSERT INTO facts VALUES (?, 1) ON CONFLICT DO UPDATE SET value = value + 1", removedFact)
		}
		return err
	})
}

// emptyLog empties the write-ahead log, which has pages as they were.
func (s *Store) emptyLog(ctx context.Context) error {
	var busy, pages, moved int
	if err := s.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &pages, &moved); err != nil {
		return translated(err)
	}
	if busy != 0 {
		return errors.New("another process is using its write-ahead log, which may still have old pages: run it again")
	}
	return nil
}
