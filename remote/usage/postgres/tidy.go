package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-3119e985/genv/remote/usage"
)

// keepEntries is for how long the ids of entries are kept: a server that is lost for longer may
// get an entry twice.
const keepEntries = "30 days"

// Tidy writes the rows of the days that have ended, gives users of old days their pseudonyms, and removes what is older than is kept. The
// size is bounded by these times alone: the server's administrator sees to its disk.
func (s *Store) Tidy(ctx context.Context, now time.Time) (early string, err error) {
	if !s.writes {
		return "", errReadOnly
	}
	if _, err := s.each(ctx, s.rollUp); err != nil {
		return "", err
	}
	renamed, err := s.each(ctx, func(ctx context.Context, tx pgx.Tx) (bool, error) { return s.usePseudonyms(ctx, tx, now) })
	if err != nil {
		return "", err
	}
	err = s.transaction(ctx, func(ctx context.Context, tx pgx.Tx) error { return s.removeOld(ctx, tx, now) })
	if err == nil && renamed {
		err = s.removeNames(ctx)
	}
	return "", err
}

// each does something for one day after the other, until nothing is to be done.
func (s *Store) each(ctx context.Context, day func(context.Context, pgx.Tx) (done bool, err error)) (some bool, err error) {
	for {
		var done bool
		err := s.transaction(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
			done, err = day(ctx, tx)
			return err
		})
		if err != nil || !done {
			return some, err
		}
		some = true
	}
}

// rollUp writes the rows of one day that has ended, if there is one.
func (s *Store) rollUp(ctx context.Context, tx pgx.Tx) (done bool, err error) {
	kept, err := s.lock(ctx, tx)
	if err != nil {
		return false, err
	}
	var hour *int64
	var until int64
	err = tx.QueryRow(ctx, `SELECT (SELECT min(start) FROM genv_usage.hours WHERE fleet = $1 AND start >= $2),
		coalesce((SELECT max(until) FROM genv_usage.marks WHERE fleet = $1), 0)`, s.fleet, kept.days).Scan(&hour, &until)
	if err != nil || hour == nil {
		return false, err
	}
	day := usage.DayOf(*hour, s.options.In)
	next := usage.NextDay(*hour, s.options.In)
	if next > until {
		return false, nil
	}
	_, err = tx.Exec(ctx, fmt.Sprintf(`INSERT INTO genv_usage.days SELECT $1::integer, $2::bigint, device, "user", eid, %s
		FROM genv_usage.hours WHERE fleet = $1 AND start >= $2 AND start < $3 GROUP BY device, "user", eid`, sums())+more("days"), s.fleet, day, next)
	if err == nil {
		_, err = tx.Exec(ctx, "UPDATE genv_usage.fleets SET days = $2 WHERE id = $1", s.fleet, next)
	}
	return err == nil, err
}

func (s *Store) removeOld(ctx context.Context, tx pgx.Tx, now time.Time) error {
	if _, err := s.lock(ctx, tx); err != nil {
		return err
	}
	hours := usage.DayOf(now.Add(-s.options.KeepHours).Unix(), s.options.In)
	days := usage.DayOf(now.Add(-s.options.KeepDays).Unix(), s.options.In)
	for _, q := range []struct {
		text string
		args []any
	}{
		{"DELETE FROM genv_usage.hours WHERE fleet = $1 AND start < $2", []any{s.fleet, hours}},
		{"DELETE FROM genv_usage.hour_sums WHERE fleet = $1 AND kind BETWEEN 1 AND 4 AND start < $2", []any{s.fleet, hours}},
		{"DELETE FROM genv_usage.days WHERE fleet = $1 AND start < $2", []any{s.fleet, days}},
		{"DELETE FROM genv_usage.day_sums WHERE fleet = $1 AND kind BETWEEN 1 AND 4 AND start < $2", []any{s.fleet, days}},
		{"DELETE FROM genv_usage.gaps WHERE fleet = $1 AND until < $2", []any{s.fleet, days}},
		{"DELETE FROM genv_usage.entries WHERE fleet = $1 AND at < now() - $2::interval", []any{s.fleet, keepEntries}},
		{"UPDATE genv_usage.fleets SET hours = greatest(hours, $2), begun = CASE begun WHEN 0 THEN 0 ELSE greatest(begun, $3) END WHERE id = $1", []any{s.fleet, hours, days}},
	} {
		if _, err := tx.Exec(ctx, q.text, q.args...); err != nil {
			return err
		}
	}
	return nil
}
