package store

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/remote/usage"
)

// known are the ids of names, as far as they have ids.
func (t *tx) known(names []string) (map[string]int64, error) {
	ids, list := make(map[string]int64), make([]string, 0, len(names))
	for _, name := range names {
		list = append(list, valid(name))
	}
	for chunk := range slices.Chunk(list, maxRows) {
		var id int64
		var name string
		list := listOf(chunk)
		err := t.rows([]any{&id, &name}, func() { ids[name] = id },
			"SELECT id, name FROM names WHERE name IN ("+list.text.String()+")", list.args...)
		if err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// rename gives what users had in a time to other names.
func (t *tx) rename(names map[string]string, since, until int64) error {
	former, err := t.known(slices.Collect(maps.Keys(names)))
	if err != nil {
		return err
	}
	next, err := t.addNames(slices.Collect(maps.Values(names)))
	if err != nil {
		return err
	}
	var pairs valuesList
	for user, name := range names {
		if id, found := former[valid(user)]; found && id != next[name] {
			pairs.add(id, next[name])
		}
	}
	if pairs.text.Len() == 0 {
		return nil
	}
	renamed := "WITH renamed (former, next) AS MATERIALIZED (" + pairs.text.String() + ") "
	for _, in := range sumTables {
		of := fmt.Sprintf("{fleet} AND r.kind = %d AND r.start >= %d AND r.start < %d", usage.OfUser, since, until)
		// SQLite reads the first one of a CROSS JOIN once, and not once for each user.
		err := t.run(renamed + in.upsert(fmt.Sprintf("SELECT {id,}r.kind, r.start, renamed.next, %s FROM %s r CROSS "+
			"JOIN renamed WHERE renamed.former = r.name AND %s GROUP BY r.kind, r.start, renamed.next", summed(), in,
			of)))
		if err == nil {
			err = t.run(fmt.Sprintf("%sDELETE FROM %s AS r WHERE %s AND r.name IN (SELECT former FROM renamed)",
				renamed, in, of))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// unusedNames is a condition for the names that no row has any more.
const unusedNames = "id NOT IN (SELECT name FROM hour_sums UNION SELECT name FROM day_sums)"

// usePseudonyms gives pseudonyms to the users of one day that has become old enough, if there is one.
func (t *tx) usePseudonyms(now time.Time) (done bool, err error) {
	before := usage.DayOf(now.Add(-t.options.Pseudonyms.After).Unix(), t.options.In)
	if t.options.Pseudonyms.Of == nil || before <= t.nameless {
		return false, nil
	}
	const during = " r WHERE {fleet} AND r.kind = $1 AND r.start >= $2 AND r.start < $3"
	first, found, err := t.number("SELECT min(start) FROM (SELECT min(r.start) AS start FROM hour_sums"+during+
		" UNION ALL SELECT min(r.start) AS start FROM day_sums"+during+") f", int64(usage.OfUser), t.nameless, before)
	if err != nil || !found {
		return false, err
	}
	day := usage.DayOf(first, t.options.In)
	next := usage.NextDay(day, t.options.In)
	names, user := make(map[string]string), ""
	err = t.rows([]any{&user}, func() {
		if pseudonym := valid(t.options.Pseudonyms.Of(user)); pseudonym != user {
			names[user] = pseudonym
		}
	}, "SELECT name FROM names WHERE id IN (SELECT r.name FROM hour_sums"+during+
		" UNION SELECT r.name FROM day_sums"+during+")", int64(usage.OfUser), day, next)
	if err != nil {
		return false, err
	}
	if err := t.rename(names, day, next); err != nil {
		return false, err
	}
	t.nameless = next
	return true, nil
}
