package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote/usage"
)

// RowsOf counts the rows about users.
func (s *Store) RowsOf(ctx context.Context, users ...string) (rows int64, err error) {
	err = s.transaction(ctx, func(t *tx) error {
		rows, _, _, err = t.extent(users)
		return err
	})
	return rows, err
}

// extent is how many rows there are about users, and from when to when.
func (t *tx) extent(users []string) (rows, first, last int64, err error) {
	var names [][]any
	for _, user := range users {
		names = append(names, []any{valid(user)})
	}
	list, err := array(names)
	if err != nil {
		return 0, 0, 0, err
	}
	var all []string
	for _, in := range t.tables() {
		all = append(all, fmt.Sprintf("SELECT r.start FROM %s r WHERE {fleet}%s AND r.%s IN (SELECT n.id FROM names n JOIN %s u ON u.name = n.name)",
			in.name, in.kind(usage.ByUser), in.user, elements("$2", field{"name", ""})))
	}
	err = t.QueryRowContext(t.ctx, t.sql("SELECT count(*), coalesce(min(start), 0), coalesce(max(start), 0) FROM ("+strings.Join(all, " UNION ALL ")+") r"), t.fleet, list).Scan(&rows, &first, &last)
	return rows, first, last, err
}

// Forget gives the rows about users to usage.Forgotten, so that all sums stay, and removes the names from the
// database. It changes a day at a time, so that controllers wait for a moment only.
func (s *Store) Forget(ctx context.Context, users ...string) error {
	if !s.writes {
		return errReadOnly
	}
	to := make(map[string]string)
	for _, user := range users {
		to[user] = string(usage.Forgotten)
	}
	var rows, first, last int64
	err := s.transaction(ctx, func(t *tx) (err error) {
		rows, first, last, err = t.extent(users)
		return err
	})
	if err != nil {
		return err
	}
	for day := usage.DayOf(first, s.options.In); rows > 0 && day <= last; day = usage.NextDay(day, s.options.In) {
		err := s.transaction(ctx, func(t *tx) error { return t.rename(to, day, usage.NextDay(day, s.options.In)) })
		if err != nil {
			return err
		}
	}
	if err := s.removeNames(ctx, s); err != nil {
		return err
	}
	return s.emptyLog(ctx, s)
}

// rename gives what users had in a time to other names.
func (t *tx) rename(names map[string]string, since, until int64) error {
	next, pairs := make(map[string]struct{}), make([][]any, 0, len(names))
	for user, name := range names {
		pairs = append(pairs, []any{valid(user), valid(name)})
		next[valid(name)] = struct{}{}
	}
	if err := t.addNames(next); err != nil {
		return err
	}
	list, err := array(pairs)
	if err != nil {
		return err
	}
	renamed := "WITH renamed AS MATERIALIZED (SELECT o.id AS former, n.id AS next FROM " + elements("$2", field{"former", ""}, field{"next", ""}) +
		" p JOIN names o ON o.name = p.former JOIN names n ON n.name = p.next WHERE o.id <> n.id) "
	for _, in := range t.tables() {
		of := "{fleet}" + in.kind(usage.ByUser) + " AND r.start >= $3 AND r.start < $4"
		keys := "r." + strings.ReplaceAll(in.keys, ", ", ", r.")
		// SQLite reads the first one of a CROSS JOIN once, and not once for each user.
		from := fmt.Sprintf("%s r CROSS JOIN renamed WHERE renamed.former = r.%s AND %s", in.name, in.user, of)
		err := t.run(renamed+in.upsert(strings.ReplaceAll(keys, "r."+in.user, "renamed.next"), from), t.fleet, list, since, until)
		if err == nil {
			err = t.run(renamed+fmt.Sprintf("DELETE FROM %s AS r WHERE %s AND r.%s IN (SELECT former FROM renamed)", in.name, of, in.user), t.fleet, list, since, until)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unusedNames are the names that no row has any more: each user with rows has sums, too.
func (s *Store) unusedNames() string {
	used := "SELECT host FROM devices UNION SELECT model FROM devices"
	for _, in := range s.tables() {
		if in.sums {
			used += " UNION SELECT name FROM " + in.name
		}
	}
	return "id NOT IN (" + used + ")"
}

// usePseudonyms gives pseudonyms to the users of one day that has become old enough, if there is one.
func (t *tx) usePseudonyms(now time.Time) (done bool, err error) {
	before := t.options.Pseudonyms.before(now, t.options.In)
	if before <= t.nameless {
		return false, nil
	}
	during := " r WHERE {fleet}" + hourSums.kind(usage.ByUser) + " AND r.start >= $2 AND r.start < $3"
	first, found, err := t.number("SELECT min(start) FROM (SELECT min(r.start) AS start FROM hour_sums"+during+" UNION ALL SELECT min(r.start) AS start FROM day_sums"+during+") f",
		t.fleet, t.nameless, before)
	if err != nil || !found {
		return false, err
	}
	day := usage.DayOf(first, t.options.In)
	next := usage.NextDay(day, t.options.In)
	names, user := make(map[string]string), ""
	err = t.rows([]any{&user}, func() {
		if pseudonym := t.options.Pseudonyms.Of(user); pseudonym != user {
			names[user] = pseudonym
		}
	}, "SELECT name FROM names WHERE id IN (SELECT r.name FROM hour_sums"+during+" UNION SELECT r.name FROM day_sums"+during+")", t.fleet, day, next)
	if err != nil {
		return false, err
	}
	if err := t.rename(names, day, next); err != nil {
		return false, err
	}
	t.nameless = next
	if month := usage.MonthOf(day, t.options.In); t.Store.months && month < t.facts.months {
		return true, t.sumMonth(month) // its names were those of the whole month
	}
	return true, nil
}
