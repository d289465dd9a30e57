package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/remote/usage"
)

// usePseudonyms gives pseudonyms to the users of the days that have become old enough, a day at a time.
func (s *Store) usePseudonyms(ctx context.Context, now time.Time) (changed bool, err error) {
	before := s.options.Pseudonyms.Before(now, s.options.In)
	if before == 0 {
		return false, nil
	}
	nameless, err := factOf(ctx, s.db, namelessFact)
	if err != nil || nameless >= before {
		return false, translated(err)
	}
	first, last, err := s.extent(ctx)
	if err != nil || last < 0 {
		return false, err
	}
	for day := usage.DayOf(max(first, nameless), s.options.In); day < before; {
		next := usage.NextDay(day, s.options.In)
		if err := s.change(ctx, func(tx *sql.Tx) error { return s.pseudonymsOf(ctx, tx, day, next) }); err != nil {
			return changed, err
		}
		day, changed = next, true
	}
	return changed, nil
}

// pseudonymsOf gives pseudonyms to the users of a day.
func (s *Store) pseudonymsOf(ctx context.Context, tx *sql.Tx, day, next int64) error {
	names := make(map[string]string)
	users, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT DISTINCT n.name FROM names n JOIN (SELECT name FROM %[1]s WHERE kind = %[3]d AND start >= ?1 AND start < ?2 "+
		"UNION SELECT name FROM %[2]s WHERE kind = %[3]d AND start >= ?1 AND start < ?2) u ON u.name = n.id", hourSums, daySums, usage.ByUser), day, next)
	if err != nil {
		return err
	}
	defer users.Close()
	for users.Next() {
		var user string
		if err := users.Scan(&user); err != nil {
			return err
		}
		if pseudonym := s.options.Pseudonyms.Of(user); pseudonym != user {
			names[user] = pseudonym
		}
	}
	if err := users.Err(); err != nil {
		return err
	}
	if err := s.noteRenamed(ctx, tx, names); err != nil {
		return err
	}
	if err := renameIn(ctx, tx, day, next); err != nil {
		return err
	}
	if err := s.renewMonth(ctx, tx, day); err != nil {
		return err
	}
	_, err = tx.Stmt(s.adding.fact).ExecContext(ctx, namelessFact, next)
	return err
}

// renewMonth sums up the users of the month of a day again, if that was done before: their names were those of
// the whole month.
func (s *Store) renewMonth(ctx context.Context, tx *sql.Tx, day int64) error {
	months, err := factOf(ctx, tx, monthsFact)
	month := usage.MonthOf(day, s.options.In)
	if err != nil || month >= months {
		return err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("DELETE FROM %s WHERE kind = %d AND start = ?", monthSums, usage.ByUser), month); err != nil {
		return err
	}
	_, err = tx.Stmt(s.adding.rollUpMonth).ExecContext(ctx, month, usage.NextMonth(month, s.options.In))
	return err
}
