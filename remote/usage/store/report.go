package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/remote/usage"
)

// Mark is up to when usage is kept.
func (s *Store) Mark(ctx context.Context) (mark usage.Mark, err error) {
	err = s.transaction(ctx, func(t *tx) error {
		mark = t.databaseFacts.Mark
		return nil
	})
	return mark, err
}

// Report sums up what is kept of a time, as of one moment.
func (s *Store) Report(ctx context.Context, q usage.Query) (report usage.Report, err error) {
	err = s.transaction(ctx, func(t *tx) error {
		report, err = t.report(&q)
		return err
	})
	return report, err
}

func (t *tx) report(q *usage.Query) (report usage.Report, err error) {
	report = usage.Report{Begun: t.begun, Mark: t.databaseFacts.Mark, Since: q.Since, Until: q.Until}
	parts := partsOf(q.Since, q.Until, t.hours, t.options.In)
	if len(parts) > 0 {
		report.Since, report.Until = parts[0].since, parts[len(parts)-1].until
	}
	rows, total := make(map[string]usage.Sum), make(map[string]usage.Sum)
	for _, p := range parts {
		err := t.sum(p, usage.OfAll, false, total)
		if err == nil {
			err = t.sum(p, q.Kind(), q.By == usage.ByDay, rows)
		}
		if err != nil {
			return report, err
		}
	}
	report.Total = total[""]
	for name, sum := range rows {
		report.Rows = append(report.Rows, usage.NamedSum{Name: name, Sum: sum})
	}
	slices.SortFunc(report.Rows, func(a, b usage.NamedSum) int { return cmp.Compare(a.Name, b.Name) })
	report.Missing, _, err = t.number("SELECT CAST(coalesce(sum({least}(until, $2) - {greatest}(since, $1)), 0) AS "+
		"bigint) FROM gaps WHERE {fleet}{part} AND since < $2 AND until > $1",
		report.Since, report.Until)
	return report, err
}

// sum adds the sums of a part of the time, by name or by date.
func (t *tx) sum(p periodTable, kind usage.Kind, byDay bool, to map[string]usage.Sum) error {
	by := "name"
	if byDay {
		by = "start"
	}
	var start, id int64
	var name string
	var sum usage.Sum
	columns := append([]any{&name, &start, &id}, amountsOf(&sum)...)
	// The names are joined to the sums: joining them to what is summed up takes twice as long.
	return t.rows(columns, func() {
		if byDay {
			name = time.Unix(start, 0).In(t.options.In).Format(time.DateOnly)
		}
		total := to[name]
		total.Add(&sum)
		to[name] = total
	}, fmt.Sprintf("SELECT n.name, s.* FROM (SELECT min(r.start) AS start, min(r.name) AS id, %s FROM %s r WHERE "+
		"{fleet} AND r.kind = $1 AND r.start >= $2 AND r.start < $3 GROUP BY r.%s) s JOIN names n ON n.id = s.id",
		summed(), p.sumTable, by), int(kind), p.since, p.until)
}

// periodTable is a time, and the table with its sums.
type periodTable struct {
	sumTable
	since, until int64
}

// nonEmpty are the parts that have time.
func nonEmpty(parts ...periodTable) (list []periodTable) {
	for _, p := range parts {
		if p.since < p.until {
			list = append(list, p)
		}
	}
	return list
}

// partsOf divide the time of a query: whole days are in the sums of days, what is before and after them in
// those of hours. hours is from when on hours are kept: what is earlier is in whole days only, so the
// time may begin and end earlier and later than asked for.
func partsOf(since, until, hours int64, in *time.Location) []periodTable {
	if until <= since {
		return nil
	}
	since = usage.HourOf(since, in)
	if end := usage.HourOf(until, in); end < until {
		until = end + 3600
	}
	first, last := usage.DayOf(since, in), usage.DayOf(until, in) // last is the day that isn't whole
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
	return nonEmpty(periodTable{hourSums, since, first}, periodTable{daySums, first, last},
		periodTable{hourSums, last, until})
}
