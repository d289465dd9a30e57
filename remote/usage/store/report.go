package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/seed-3119e985/genv/remote/usage"
)

// Mark implements usage.Store.
func (s *Store) Mark(ctx context.Context) (mark usage.Mark, err error) {
	err = s.transaction(ctx, func(t *tx) { mark = t.databaseFacts.Mark })
	return mark, err
}

// Report sums up a period in one transaction. For groups it has users, which the caller joins.
func (s *Store) Report(ctx context.Context, q usage.Query) (report *usage.Report, err error) {
	err = s.transaction(ctx, func(t *tx) { report = t.report(&q) })
	return report, err
}

func (t *tx) report(q *usage.Query) *usage.Report {
	parts := partsOf(q.Since, q.Until, t.hours, t.options.In)
	since, until, by := q.Since, q.Until, "r.name"
	if len(parts) > 0 {
		since, until = parts[0].since, parts[len(parts)-1].until
	}
	if q.By == usage.ByDay {
		by = "r.start"
	}
	total, rows := usage.Sum{}, make(map[string]*sumRow)
	for _, p := range parts {
		t.sum(p, usage.OfAll, "r.name", "r.name", func(r *sumRow) { total.Add(&r.Sum) })
		t.sum(p, q.Kind(), "min(r.name)", by, func(r *sumRow) {
			if q.By == usage.ByDay {
				r.name = t.dateOf(r.start)
			}
			if rows[r.name] == nil {
				rows[r.name] = &sumRow{name: r.name, id: r.id}
			}
			rows[r.name].Add(&r.Sum)
		})
	}
	at := func(second int64) time.Time { return time.Unix(second, 0).In(t.options.In) }
	report := &usage.Report{
		Schema: usage.ReportSchema, By: q.By, Since: at(since), Until: at(until), Begun: at(t.begun),
		Recorded: at(t.Until), Rows: []usage.ReportRow{}, Days: make(usage.Days),
		Total: usage.ReportRow{Amounts: total.Amounts, Peak: &total.Peak},
	}
	for name, row := range rows {
		report.Rows = append(report.Rows, usage.ReportRow{Key: name, Amounts: row.Amounts, Peak: &row.Peak})
	}
	report.Arrange()
	if q.Days && q.By != usage.ByDay {
		t.addDays(report.Days, parts, q, slices.Collect(maps.Values(rows)))
	}
	report.Missing, _ = t.number("SELECT CAST(coalesce(sum({least}(until, $2) - {greatest}(since, $1)), 0) AS bigint) "+
		"FROM gaps WHERE {fleet}{part} AND since < $2 AND until > $1", since, until)
	return report
}

func (t *tx) dateOf(start int64) string {
	return time.Unix(start, 0).In(t.options.In).Format(time.DateOnly)
}

const (
	maxByDay      = 64   // names with sums by day
	maxUsersByDay = 2048 // same, to make groups from
)

// addDays adds daily sums of the names with most time, and of all others together.
func (t *tx) addDays(days usage.Days, parts []periodTable, q *usage.Query, rows []*sumRow) {
	slices.SortFunc(rows, func(a, b *sumRow) int {
		return cmp.Or(cmp.Compare(max(b.Attached, b.Used), max(a.Attached, a.Used)), cmp.Compare(a.name, b.name))
	})
	most := maxByDay
	if q.By == usage.ByGroup {
		most = maxUsersByDay
	}
	ids := "0"
	for _, row := range rows[:min(most, len(rows))] {
		ids += ", " + strconv.FormatInt(row.id, 10)
	}
	for _, p := range parts {
		t.sum(p, q.Kind(), "CASE WHEN r.name IN ("+ids+") THEN r.name ELSE 0 END", "r.start, 2",
			func(r *sumRow) { days.Add(r.name, t.dateOf(r.start), &r.Amounts) })
	}
}

type sumRow struct {
	name      string
	start, id int64
	usage.Sum
}

// sum calls add for a part's sums. id and by are expressions over rows r; id 0 is for others.
func (t *tx) sum(p periodTable, kind usage.SumKind, id, by string, add func(*sumRow)) {
	var r sumRow
	columns := append([]any{&r.name, &r.start, &r.id}, amountsOf(&r.Sum)...)
	// Joining names to the rows takes twice as long.
	t.rows(columns, func() { add(&r) }, fmt.Sprintf("SELECT coalesce(n.name, '%s'), s.* FROM (SELECT "+
		"min(r.start) AS start, %s AS id, %s FROM %s r WHERE {fleet} AND r.kind = $1 AND r.start >= $2 AND "+
		"r.start < $3 GROUP BY %s) s LEFT JOIN names n ON n.id = s.id WHERE n.id > 0 OR s.id = 0",
		usage.Others, id, summed(), p.sumTable, by), int(kind), p.since, p.until)
}

type periodTable struct {
	sumTable
	since, until int64
}

// partsOf divides a period into whole days and hours around them. Before hours there are only whole days, which may
// extend it.
func partsOf(since, until, hours int64, in *time.Location) []periodTable {
	if until <= since {
		return nil
	}
	since = usage.HourOf(since, in)
	if end := usage.HourOf(until, in); end < until {
		until = end + 3600
	}
	first, last := usage.DayOf(since, in), usage.DayOf(until, in) // last: the incomplete day
	switch {
	case first == since:
	case first < hours:
		since = first
	default:
		first = usage.NextDay(since, in)
	}
	if last < hours && last < until {
		last = usage.NextDay(until, in)
		until = last
	}
	if first >= last {
		return []periodTable{{hourSums, since, until}}
	}
	parts := []periodTable{{hourSums, since, first}, {daySums, first, last}, {hourSums, last, until}}
	return slices.DeleteFunc(parts, func(p periodTable) bool { return p.since >= p.until })
}
