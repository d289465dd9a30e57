package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote/usage"
)

// Tidy writes the sums of months that have ended, removes what is older than is kept, and gives users of old days
// their pseudonyms. Once a day it removes names that nothing has any more. If a file is nearly as big as it may
// be, it removes the oldest hours early; the sums of days stay.
func (s *Store) Tidy(ctx context.Context, now time.Time) (early string, err error) {
	if !s.writes {
		return "", errReadOnly
	}
	if _, err := s.each(ctx, (*tx).rollUp); err != nil && !errors.Is(err, usage.ErrFull) { // with room again it is done
		return "", err
	}
	hours := usage.DayOf(now.Add(-s.options.KeepHours).Unix(), s.options.In)
	days := usage.DayOf(now.Add(-s.options.KeepDays).Unix(), s.options.In)
	for _, from := range s.tables() {
		before := days
		if from == hourSums {
			before = hours
		}
		if _, err := s.each(ctx, func(t *tx) (bool, error) { return t.removeOldest(from, before) }); err != nil {
			return "", err
		}
	}
	renamed, err := s.each(ctx, func(t *tx) (bool, error) { return t.usePseudonyms(now) })
	if err != nil && !errors.Is(err, usage.ErrFull) {
		return "", err
	}
	tidied := false // on this day already
	err = s.transaction(ctx, func(t *tx) error {
		tidied = t.hours == hours
		return t.forgetOld(hours, days)
	})
	if err == nil && (renamed || !tidied) {
		err = s.removeNames(ctx, s)
	}
	if err != nil && !errors.Is(err, usage.ErrFull) {
		return "", err
	}
	return s.makeRoom(ctx)
}

// rollUp writes the sums of one month that has ended, if there is one.
func (t *tx) rollUp() (done bool, err error) {
	if !t.Store.months {
		return false, nil
	}
	month := t.facts.months
	if month == 0 {
		oldest, found, err := t.oldest(daySums)
		if err != nil || !found {
			return false, err
		}
		month = usage.MonthOf(oldest, t.options.In)
	}
	next := usage.NextMonth(month, t.options.In)
	if next > t.Until {
		return false, nil
	}
	t.facts.months = next
	return true, t.sumMonth(month)
}

// sumMonth sums up a month, also if that was done before.
func (t *tx) sumMonth(month int64) error {
	if err := t.remove(monthSums, month); err != nil {
		return err
	}
	return t.run(monthSums.upsert(fmt.Sprintf("SELECT {id,}r.kind, %d, r.name, %s FROM day_sums r "+
		"WHERE {fleet}%s AND r.start >= %d AND r.start < %d GROUP BY r.kind, r.name",
		month, summed(), allKinds, month, usage.NextMonth(month, t.options.In))))
}

// removeOldest removes what begins first in a table, if that is before a moment: so each change is small.
func (t *tx) removeOldest(from table, before int64) (done bool, err error) {
	start, found, err := t.oldest(from)
	if err != nil || !found || start >= before {
		return false, err
	}
	return true, t.remove(from, start)
}

// oldest is the first start in a table. The index is by kind: each has its own.
func (t *tx) oldest(in table) (start int64, found bool, err error) {
	var first []string
	for _, kind := range []usage.Kind{usage.ByUser, usage.ByHost, usage.ByModel, usage.OfAll} {
		first = append(first, fmt.Sprintf("SELECT min(r.start) AS start FROM %s r WHERE {fleet} AND r.kind = %d", in, kind))
	}
	return t.number("SELECT min(start) FROM (" + strings.Join(first, " UNION ALL ") + ") f")
}

// remove removes what begins at a moment from a table.
func (t *tx) remove(from table, start int64) error {
	return t.run(fmt.Sprintf("DELETE FROM %s AS r WHERE {fleet}%s AND r.start = $1", from, allKinds), start)
}

// forgetOld removes old gaps, and notes from when on there are hours and days.
func (t *tx) forgetOld(hours, days int64) error {
	t.hours = max(t.hours, hours)
	if t.begun != 0 {
		t.begun = max(t.begun, days)
	}
	if err := t.run("DELETE FROM gaps WHERE {fleet} AND until < $1", days); err != nil || !t.shared {
		return err
	}
	return t.run("DELETE FROM entries WHERE {fleet} AND at < now() - interval '" + keepEntries + "'")
}

// makeRoom removes the oldest hours of a file until a tenth of it is free.
func (s *Store) makeRoom(ctx context.Context) (early string, err error) {
	if s.shared {
		return "", nil // its administrator sees to the disk
	}
	var until int64
	_, err = s.each(ctx, func(t *tx) (bool, error) {
		var pages, unused int64
		err := t.row("SELECT page_count, freelist_count FROM pragma_page_count(), pragma_freelist_count()").Scan(&pages, &unused)
		if err != nil || s.options.MaxBytes-(pages-unused)*pageSize >= s.options.MaxBytes/10 {
			return false, err
		}
		start, found, err := t.oldest(hourSums)
		if err != nil || !found {
			return false, err
		}
		until = max(until, start)
		t.hours = max(t.hours, usage.NextDay(start, t.options.In)) // reports of that day are of the whole day
		return true, t.remove(hourSums, start)
	})
	if until > 0 {
		early = fmt.Sprintf("it has reached its size of %d MB: what it kept by hour until %s was removed, and what it kept by day stays",
			s.options.MaxBytes/1e6, time.Unix(until, 0).In(s.options.In).Format("2006-01-02 15:04"))
	}
	return early, err
}
