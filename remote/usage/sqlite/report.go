package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
)

// Mark is up to when usage is kept.
func (s *Store) Mark(ctx context.Context) (store.Mark, error) {
	until, err := factOf(ctx, s.db, untilFact)
	ended, endedErr := factOf(ctx, s.db, endedFact)
	return store.Mark{Until: until, Ended: ended != 0}, translated(cmp.Or(err, endedErr))
}

// Report sums up what is kept of a time, as of one moment.
func (s *Store) Report(ctx context.Context, q store.Query) (r store.Report, err error) {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return r, translated(err)
	}
	defer func() { _ = tx.Rollback() }() // it only reads
	report := reporting{ctx: ctx, tx: tx, in: s.options.In}
	r, err = report.report(&q)
	return r, translated(err)
}

type reporting struct {
	ctx context.Context //nolint:containedctx // of one call
	tx  *sql.Tx
	in  *time.Location
}

func (r *reporting) report(q *store.Query) (report store.Report, err error) {
	var facts [4]int64
	for i, name := range []string{begunFact, untilFact, endedFact, hoursFact} {
		if facts[i], err = factOf(r.ctx, r.tx, name); err != nil {
			return report, err
		}
	}
	report.Begun, report.Mark = facts[0], store.Mark{Until: facts[1], Ended: facts[2] != 0}
	report.Since, report.Until = q.Since, q.Until
	parts := store.Parts(q.Since, q.Until, facts[3], r.in)
	if len(parts) > 0 {
		report.Since, report.Until = parts[0].Since, parts[len(parts)-1].Until
	}
	rows, total := make(map[string]usage.Sum), make(map[string]usage.Sum)
	for _, p := range parts {
		if err = r.sum(p, usage.OfAll, false, total); err != nil {
			return report, err
		}
		if q.ByDay {
			err = r.sum(p, usage.OfAll, true, rows)
		} else {
			err = r.sum(p, q.Kind, false, rows)
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
	report.Missing, err = r.missing(report.Since, report.Until)
	return report, err
}

// sum adds the sums of a part, by name or by date.
func (r *reporting) sum(p store.Part, kind usage.Kind, byDay bool, to map[string]usage.Sum) error {
	table, by := hourSums, "name"
	if p.Table == store.Days {
		table = daySums
	}
	if byDay {
		by = "start"
	}
	// The names are joined to the sums: joining them to what is summed up takes twice as long.
	rows, err := r.tx.QueryContext(r.ctx, fmt.Sprintf(
		"SELECT s.start, n.name, s.* FROM (SELECT start, name, %s, max(peak) FROM %s WHERE kind = ? AND start >= ? AND start < ? GROUP BY %s) s JOIN names n ON n.id = s.name",
		amountSums(), table, by), int(kind), p.Since, p.Until)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var start, id int64
		var name string
		var sum usage.Sum
		if err := rows.Scan(append([]any{&start, &name, &start, &id}, append(amountsOf(&sum.Amounts), &sum.Peak)...)...); err != nil {
			return err
		}
		if byDay {
			name = time.Unix(start, 0).In(r.in).Format(time.DateOnly)
		}
		total := to[name]
		total.Add(&sum)
		to[name] = total
	}
	return rows.Err()
}

// missing is for how many seconds of a time nothing is known.
func (r *reporting) missing(since, until int64) (seconds int64, err error) {
	err = r.tx.QueryRowContext(r.ctx,
		"SELECT coalesce(sum(min(until, ?2) - max(since, ?1)), 0) FROM gaps WHERE since < ?2 AND until > ?1", since, until).Scan(&seconds)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return seconds, err
}
