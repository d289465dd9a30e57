package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
)

// Tidy writes the rows of the days that have ended, and removes what is older than is kept. If the file is nearly as big as it may be, it
// removes the oldest of what is kept of environments and devices, the hours first; the sums
// stay. Once a day it removes names that nothing has any more, and gives users of old days their pseudonyms.
func (s *Store) Tidy(ctx context.Context, now time.Time) (early string, err error) {
	if err := cmp.Or(s.rollUp(ctx), s.rollUpMonths(ctx)); err != nil && !errors.Is(err, store.ErrFull) { // with room again it is done
		return "", err
	}
	hours := usage.DayOf(now.Add(-s.options.KeepHours).Unix(), s.options.In)
	days := usage.DayOf(now.Add(-s.options.KeepDays).Unix(), s.options.In)
	for table, before := range map[string]int64{hourRows: hours, hourSums: hours, dayRows: days, daySums: days, monthSums: days} {
		if err := s.removeBefore(ctx, table, before); err != nil {
			return "", err
		}
	}
	nameless, err := s.usePseudonyms(ctx, now)
	if err != nil && !errors.Is(err, store.ErrFull) {
		return "", err
	}
	if tidied, factErr := factOf(ctx, s.db, hoursFact); nameless || tidied != hours {
		if err := cmp.Or(factErr, s.removeNames(ctx)); err != nil && !errors.Is(err, store.ErrFull) {
			return "", translated(err)
		}
	}
	err = s.change(ctx, func(tx *sql.Tx) error {
		for _, q := range []struct {
			text string
			args []any
		}{
			{"DELETE FROM gaps WHERE until < ?", []any{days}},
			{"UPDATE facts SET value = max(value, ?) WHERE name = ?", []any{days, begunFact}},
			{"INSERT INTO facts VALUES (?, ?) ON CONFLICT DO UPDATE SET value = max(value, excluded.value)", []any{hoursFact, hours}},
		} {
			if _, err := tx.Exec(q.text, q.args...); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return s.makeRoom(ctx)
}

// rollUp writes the rows of the days that have ended, a day at a time.
func (s *Store) rollUp(ctx context.Context) error {
	mark, err := s.Mark(ctx)
	if err != nil {
		return err
	}
	days, err := factOf(ctx, s.db, daysFact)
	if err != nil {
		return translated(err)
	}
	for {
		var hour sql.NullInt64
		if err := s.db.QueryRowContext(ctx, "SELECT min(start) FROM "+hourRows+" WHERE start >= ?", days).Scan(&hour); err != nil {
			return translated(err)
		}
		day := usage.DayOf(hour.Int64, s.options.In)
		if days = usage.NextDay(day, s.options.In); !hour.Valid || days > mark.Until {
			return nil
		}
		err := s.change(ctx, func(tx *sql.Tx) error {
			_, err := tx.Stmt(s.adding.rollUp).ExecContext(ctx, day, days)
			if err == nil {
				_, err = tx.Stmt(s.adding.fact).ExecContext(ctx, daysFact, days)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
}

// rollUpMonths writes the sums of the months that have ended, a month at a time.
func (s *Store) rollUpMonths(ctx context.Context) error {
	mark, err := s.Mark(ctx)
	if err != nil {
		return err
	}
	months, err := factOf(ctx, s.db, monthsFact)
	if err != nil {
		return translated(err)
	}
	if months == 0 {
		oldest, found, err := s.oldest(ctx, daySums)
		if err != nil || !found {
			return err
		}
		months = usage.MonthOf(oldest, s.options.In)
	}
	for {
		month := months
		if months = usage.NextMonth(month, s.options.In); months > mark.Until {
			return nil
		}
		err := s.change(ctx, func(tx *sql.Tx) error {
			_, err := tx.Stmt(s.adding.rollUpMonth).ExecContext(ctx, month, months)
			if err == nil {
				_, err = tx.Stmt(s.adding.fact).ExecContext(ctx, monthsFact, months)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
}

// removeBefore removes what begins before a moment, a start at a time, so that each change
// is small.
func (s *Store) removeBefore(ctx context.Context, table string, before int64) error {
	for {
		oldest, found, err := s.oldest(ctx, table)
		if err != nil || !found || oldest >= before {
			return err
		}
		if err := s.remove(ctx, table, oldest); err != nil {
			return err
		}
	}
}

// oldest is the first start in a table.
func (s *Store) oldest(ctx context.Context, table string) (start int64, found bool, err error) {
	var oldest sql.NullInt64
	err = s.db.QueryRowContext(ctx, "SELECT "+first(table)).Scan(&oldest)
	return oldest.Int64, oldest.Valid, translated(err)
}

// first is the first start in a table. Sums are sorted by kind: each has its own.
func first(table string) string {
	if !hasSums(table) {
		return "min(start) FROM " + table
	}
	var first []string
	for _, kind := range []usage.Kind{usage.ByUser, usage.ByHost, usage.ByModel, usage.OfAll} {
		first = append(first, fmt.Sprintf("SELECT min(start) AS start FROM %s WHERE kind = %d", table, kind))
	}
	return "min(start) FROM (" + strings.Join(first, " UNION ALL ") + ")"
}

func (s *Store) remove(ctx context.Context, table string, start int64) error {
	return s.change(ctx, func(tx *sql.Tx) error {
		where := " WHERE start = ?"
		if hasSums(table) {
			where = " WHERE kind IN (" + kinds + ") AND start = ?"
		}
		_, err := tx.Exec("DELETE FROM "+table+where, start)
		return err
	})
}

// makeRoom removes the oldest rows until a tenth of the file is free.
func (s *Store) makeRoom(ctx context.Context) (early string, err error) {
	var until int64
	for {
		free, err := s.free(ctx)
		if err != nil || free >= s.options.MaxBytes/10 {
			return early, err
		}
		table := hourRows
		start, found, err := s.oldest(ctx, table)
		if err == nil && !found {
			table = dayRows
			start, found, err = s.oldest(ctx, table)
		}
		if err != nil || !found {
			return early, err
		}
		if err := s.remove(ctx, table, start); err != nil {
			return early, err
		}
		until = max(until, start)
		early = fmt.Sprintf("it has reached its size of %d MB: what it kept of single environments and devices until %s was removed",
			s.options.MaxBytes/1e6, time.Unix(until, 0).In(s.options.In).Format("2006-01-02 15:04"))
	}
}

// free is how many bytes the file may still take in.
func (s *Store) free(ctx context.Context) (int64, error) {
	var pages, unused int64
	if err := s.db.QueryRowContext(ctx, "SELECT page_count, freelist_count FROM pragma_page_count(), pragma_freelist_count()").Scan(&pages, &unused); err != nil {
		return 0, translated(err)
	}
	return s.options.MaxBytes - (pages-unused)*pageSize, nil
}
