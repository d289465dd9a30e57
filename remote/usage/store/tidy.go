package store

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote/usage"
)

// Tidy writes the rows of the days that have ended and the sums of such months, removes what is older than is
// kept, and gives users of old days their pseudonyms. Once a day it removes names that nothing has any
// more. If a file is nearly as big as it may be, it removes the oldest of what is kept of environments and devices,
// the hours first; the sums stay.
func (s *Store) Tidy(ctx context.Context, now time.Time) (early string, err error) {
	if !s.writes {
		return "", errReadOnly
	}
	for _, f := range []func(*tx) (bool, error){(*tx).rollUp, (*tx).rollUpMonth} {
		if _, err := s.each(ctx, f); err != nil && !errors.Is(err, usage.ErrFull) { // with room again it is done
			return "", err
		}
	}
	hours := usage.DayOf(now.Add(-s.options.KeepHours).Unix(), s.options.In)
	days := usage.DayOf(now.Add(-s.options.KeepDays).Unix(), s.options.In)
	for _, from := range s.tables() {
		before := days
		if from == hourRows || from == hourSums {
			before = hours
		}
		if _, err := s.each(ctx, func(t *tx) (bool, error) { return t.removeOldest(&from, before) }); err != nil {
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
	return s.makeRoom(ctx, s)
}

// rollUp writes the rows of one day that has ended, if there is one. They are written in the order of their
// keys, all at once: that takes a third less room than adding each hour to its day.
func (t *tx) rollUp() (done bool, err error) {
	hour, found, err := t.number("SELECT min(start) FROM hours WHERE {fleet} AND start >= $2", t.fleet, t.days)
	if err != nil || !found {
		return false, err
	}
	day, next := usage.DayOf(hour, t.options.In), usage.NextDay(hour, t.options.In)
	if next > t.Until {
		return false, nil
	}
	t.days = next
	return true, t.run(dayRows.upsert(`CAST($2 AS bigint), r.device, r."user", r.eid`, "hours r WHERE {fleet} AND r.start >= $2 AND r.start < $3"), t.fleet, day, next)
}

// rollUpMonth writes the sums of one month that has ended, if there is one.
func (t *tx) rollUpMonth() (done bool, err error) {
	if !t.Store.months {
		return false, nil
	}
	month := t.facts.months
	if month == 0 {
		oldest, found, err := t.oldest(&daySums)
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
	if err := t.remove(&monthSums, month); err != nil {
		return err
	}
	return t.run(monthSums.upsert("r.kind, CAST($2 AS bigint), r.name", "day_sums r WHERE {fleet}"+daySums.kind(allKinds()...)+" AND r.start >= $2 AND r.start < $3"),
		t.fleet, month, usage.NextMonth(month, t.options.In))
}

// removeOldest removes what begins first in a table, if that is before a moment: so each change is small.
func (t *tx) removeOldest(from *table, before int64) (done bool, err error) {
	start, found, err := t.oldest(from)
	if err != nil || !found || start >= before {
		return false, err
	}
	return true, t.remove(from, start)
}

// oldest is the first start in a table. Sums are sorted by kind: each has its own.
func (t *tx) oldest(in *table) (start int64, found bool, err error) {
	if !in.sums {
		return t.number("SELECT min(start) FROM "+in.name+" WHERE {fleet}", t.fleet)
	}
	var first []string
	for _, kind := range allKinds() {
		first = append(first, "SELECT min(r.start) AS start FROM "+in.name+" r WHERE {fleet}"+in.kind(kind))
	}
	return t.number("SELECT min(start) FROM ("+strings.Join(first, " UNION ALL ")+") f", t.fleet)
}

// remove removes what begins at a moment from a table.
func (t *tx) remove(from *table, start int64) error {
	return t.run("DELETE FROM "+from.name+" AS r WHERE {fleet}"+from.kind(allKinds()...)+" AND r.start = $2", t.fleet, start)
}

// forgetOld removes old gaps, and notes from when on there are hours and days.
func (t *tx) forgetOld(hours, days int64) error {
	t.hours = max(t.hours, hours)
	if t.begun != 0 {
		t.begun = max(t.begun, days)
	}
	if err := t.run("DELETE FROM gaps WHERE {fleet} AND until < $2", t.fleet, days); err != nil {
		return err
	}
	return t.tidy(t)
}
