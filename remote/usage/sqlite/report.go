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
	months, err := r.months()
	if err != nil {
		return report, err
	}
	for _, p := range parts {
		if q.ByDay {
			if err = r.sum(tableOf(p), p.Since, p.Until, usage.OfAll, true, rows); err != nil {
				return report, err
			}
		}
		for _, part := range months.divide(p, r.in) {
			err = r.sum(part.table, part.since, part.until, usage.OfAll, false, total)
			if err == nil && !q.ByDay {
				err = r.sum(part.table, part.since, part.until, q.Kind, false, rows)
			}
			if err != nil {
				return report, err
			}
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

// sum adds the sums of a table, by name or by date.
func (r *reporting) sum(table string, since, until int64, kind usage.Kind, byDay bool, to map[string]usage.Sum) error {
	by := "name"
	if byDay {
		by = "start"
	}
	// The names are joined to the sums: joining them to what is summed up takes twice as long.
	rows, err := r.tx.QueryContext(r.ctx, fmt.Sprintf(
		"SELECT s.start, n.name, s.* FROM (SELECT start, name, %s, max(peak) FROM %s WHERE kind = ? AND start >= ? AND start < ? GROUP BY %s) s JOIN names n ON n.id = s.name",
		amountSums(), table, by), int(kind), since, until)
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

// months is from when on, and up to when, there are sums of months.
type months struct{ first, end int64 }

func (r *reporting) months() (m months, err error) {
	var tables int // an older genv, which still runs, has none
	err = r.tx.QueryRowContext(r.ctx, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?", monthSums).Scan(&tables)
	if err != nil || tables == 0 {
		return m, err
	}
	err = r.tx.QueryRowContext(r.ctx, "SELECT coalesce(min(start), 0) FROM "+monthSums+" WHERE kind = ?", int(usage.OfAll)).Scan(&m.first)
	if err == nil && m.first != 0 {
		m.end, err = factOf(r.ctx, r.tx, monthsFact)
	}
	return m, err
}

// part is a time, and the table with its sums.
type part struct {
	table        string
	since, until int64
}

func tableOf(p store.Part) string {
	if p.Table == store.Days {
		return daySums
	}
	return hourSums
}

// divide takes whole months of days from the sums of months.
func (m months) divide(p store.Part, in *time.Location) (parts []part) {
	first, last := max(p.Since, m.first), min(usage.MonthOf(p.Until, in), m.end)
	if start := usage.MonthOf(first, in); start != first {
		first = usage.NextMonth(first, in)
	}
	if p.Table != store.Days || first >= last {
		return []part{{tableOf(p), p.Since, p.Until}}
	}
	for _, one := range []part{{daySums, p.Since, first}, {monthSums, first, last}, {daySums, last, p.Until}} {
		if one.since < one.until {
			parts = append(parts, one)
		}
	}
	return parts
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
