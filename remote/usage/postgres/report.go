package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
)

// Mark is up to when usage is kept.
func (s *Store) Mark(ctx context.Context) (mark store.Mark, err error) {
	err = s.transaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
		mark, err = s.mark(ctx, tx)
		return err
	})
	return mark, err
}

func (s *Store) mark(ctx context.Context, tx pgx.Tx) (mark store.Mark, err error) {
	err = tx.QueryRow(ctx, "SELECT until, ended FROM genv_usage.marks WHERE fleet = $1 AND part = ''",
		s.fleet).Scan(&mark.Until, &mark.Ended)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return mark, err
}

// Report sums up what is kept of a time, as of one moment.
func (s *Store) Report(ctx context.Context, q store.Query) (report store.Report, err error) {
	err = s.transaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
		report, err = s.report(ctx, tx, &q)
		return err
	})
	return report, err
}

func (s *Store) report(ctx context.Context, tx pgx.Tx, q *store.Query) (report store.Report, err error) {
	var hours int64
	if err := tx.QueryRow(ctx, "SELECT begun, hours FROM genv_usage.fleets WHERE id = $1", s.fleet).Scan(&report.Begun, &hours); err != nil {
		return report, err
	}
	if report.Mark, err = s.mark(ctx, tx); err != nil {
		return report, err
	}
	report.Since, report.Until = q.Since, q.Until
	parts := store.Parts(q.Since, q.Until, hours, s.options.In)
	if len(parts) > 0 {
		report.Since, report.Until = parts[0].Since, parts[len(parts)-1].Until
	}
	rows, total := make(map[string]usage.Sum), make(map[string]usage.Sum)
	for _, p := range parts {
		err = s.sum(ctx, tx, p, usage.OfAll, false, total)
		switch {
		case err != nil:
		case q.ByDay:
			err = s.sum(ctx, tx, p, usage.OfAll, true, rows)
		default:
			err = s.sum(ctx, tx, p, q.Kind, false, rows)
		}
		if err != nil {
			return report, err
		}
	}
	report.Total = total[""]
	for name, sum := range rows {
		report.Rows = append(report.Rows, store.Row{Name: name, Sum: sum})
	}
	slices.SortFunc(report.Rows, func(a, b store.Row) int { return cmp.Compare(a.Name, b.Name) })
	err = tx.QueryRow(ctx, `SELECT coalesce(sum(least(until, $3) - greatest(since, $2)), 0)::bigint FROM genv_usage.gaps
		WHERE fleet = $1 AND part = '' AND since < $3 AND until > $2`,
		s.fleet, report.Since, report.Until).Scan(&report.Missing)
	return report, err
}

// sum adds the sums of a part of the time, by name or by date.
func (s *Store) sum(ctx context.Context, tx pgx.Tx, p store.Part, kind usage.Kind, byDay bool, to map[string]usage.Sum) error {
	table, by := "hour_sums", "name"
	if p.Table == store.Days {
		table = "day_sums"
	}
	if byDay {
		by = "start"
	}
	found, err := tx.Query(ctx, fmt.Sprintf(`SELECT s.start, n.name, s.* FROM
		(SELECT min(start) AS start, min(name) AS id, %s, max(peak) FROM genv_usage.%s WHERE fleet = $1 AND kind = $2 AND start >= $3 AND start < $4 GROUP BY %s) s
		JOIN genv_usage.names n ON n.id = s.id`, sums(), table, by), s.fleet, int(kind), p.Since, p.Until)
	if err != nil {
		return err
	}
	var start, id int64
	var name string
	var sum usage.Sum
	columns := []any{&start, &name, &start, &id}
	for _, amount := range amountsOf(&sum.Amounts) {
		columns = append(columns, amount)
	}
	_, err = pgx.ForEachRow(found, append(columns, &sum.Peak), func() error {
		if byDay {
			name = time.Unix(start, 0).In(s.options.In).Format(time.DateOnly)
		}
		total := to[name]
		total.Add(&sum)
		to[name] = total
		return nil
	})
	return err
}
