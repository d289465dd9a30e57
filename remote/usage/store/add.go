package store

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/seed-3119e985/genv/remote/usage"
)

// Add keeps an entry; on a server one with the id of an earlier one only once.
func (s *Store) Add(ctx context.Context, e *usage.Entry) error {
	if !s.writes {
		return errReadOnly
	}
	return s.transaction(ctx, func(t *tx) error {
		if isNew, err := t.isNew(e.ID); err != nil || !isNew {
			return err
		}
		if err := t.addSums(e.Sums); err != nil {
			return err
		}
		return t.addMark(e)
	})
}

// isNew notes the id of an entry on a server. In a file an entry that failed isn't there.
func (t *tx) isNew(id string) (isNew bool, err error) {
	if !t.shared || id == "" {
		return true, nil
	}
	err = t.rows([]any{&id}, func() { isNew = true },
		"INSERT INTO entries ({fleet,}id) VALUES ({id,}$1) ON CONFLICT DO NOTHING RETURNING id", id)
	return isNew, err
}

// addSums adds to the sums of hours and days. What is earlier than the sums of months that are written is added
// to those, too. Names that differ only in what databases don't take are the same.
func (t *tx) addSums(sums usage.Sums) error {
	added := map[table]usage.Sums{hourSums: {}, daySums: {}, monthSums: {}}
	var list []string
	for key := range sums {
		sum, hour := sums[key], key.Hour
		key.Name = t.nameOf(&key)
		list = append(list, key.Name)
		added[hourSums].Add(key, &sum)
		key.Hour = usage.DayOf(hour, t.options.In)
		added[daySums].Add(key, &sum)
		if hour < t.facts.months {
			key.Hour = usage.MonthOf(hour, t.options.In)
			added[monthSums].Add(key, &sum)
		}
	}
	names, err := t.addNames(list)
	if err != nil {
		return err
	}
	for _, to := range t.tables() {
		if err := t.insert(to, added[to], names); err != nil {
			return err
		}
	}
	return nil
}

// insert adds rows in the order of their keys: so pages are written one after the other.
func (t *tx) insert(to table, sums usage.Sums, names map[string]int64) error {
	keys := slices.SortedFunc(maps.Keys(sums), func(a, b usage.SumKey) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Hour, b.Hour), cmp.Compare(names[a.Name], names[b.Name]))
	})
	for chunk := range slices.Chunk(keys, maxRows) {
		list := list{prefix: "{id,}"}
		for _, key := range chunk {
			sum := sums[key]
			list.add(append([]any{int64(key.Kind), key.Hour, names[key.Name]}, amountsOf(&sum)...)...)
		}
		if err := t.run(to.upsert(list.text.String()), list.args...); err != nil {
			return err
		}
	}
	return nil
}

// nameOf is the name of a sum as it is stored: the pseudonym in an hour whose users have pseudonyms already.
func (t *tx) nameOf(key *usage.SumKey) string {
	if of := t.options.Pseudonyms.Of; key.Kind == usage.ByUser && of != nil && key.Hour < t.nameless {
		return valid(of(key.Name))
	}
	return valid(key.Name)
}

// addNames gives ids to names that have none, and returns those of all. Names are added in their order: so
// writers of several fleets don't wait for each other in a circle.
func (t *tx) addNames(names []string) (map[string]int64, error) {
	if t.shared { // no other writer removes names that have no rows yet
		if err := t.run("LOCK TABLE names IN ROW EXCLUSIVE MODE"); err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	ids, err := t.known(names)
	if err != nil {
		return nil, err
	}
	missing := slices.DeleteFunc(names, func(name string) bool { _, found := ids[name]; return found })
	for chunk := range slices.Chunk(missing, maxRows) {
		list := listOf(chunk)
		if err := t.run("INSERT INTO names (name) "+list.text.String()+" ON CONFLICT DO NOTHING", list.args...); err != nil {
			return nil, err
		}
	}
	added, err := t.known(missing)
	maps.Copy(ids, added)
	return ids, err
}

// addMark notes how far usage is kept, and the gaps. An entry that comes late ends the gap that another
// controller found meanwhile.
func (t *tx) addMark(e *usage.Entry) error {
	if err := t.closeGaps(usage.Gap{Since: e.Since, Until: e.Until}); err != nil {
		return err
	}
	if err := t.addGaps(e.Gaps); err != nil {
		return err
	}
	if e.Until >= t.Until || !t.shared {
		t.facts.Mark = e.Mark
	}
	if t.begun == 0 || t.begun > e.Since {
		t.begun = e.Since
	}
	return nil
}

func (t *tx) addGaps(gaps []usage.Gap) error {
	for _, gap := range gaps {
		err := t.run("INSERT INTO gaps ({fleet,}{part,}since, until) VALUES ({id,}{'',}$1, $2) "+
			"ON CONFLICT ({fleet,}{part,}since) DO UPDATE SET until = {greatest}(gaps.until, excluded.until)", gap.Since, gap.Until)
		if err != nil {
			return err
		}
	}
	return nil
}

// closeGaps takes a time that is known out of the gaps.
func (t *tx) closeGaps(known usage.Gap) error {
	var gap usage.Gap
	var rest []usage.Gap
	err := t.rows([]any{&gap.Since, &gap.Until}, func() {
		for _, part := range []usage.Gap{{Since: gap.Since, Until: known.Since}, {Since: known.Until, Until: gap.Until}} {
			if part.Since < part.Until {
				rest = append(rest, part)
			}
		}
	}, "DELETE FROM gaps WHERE {fleet}{part} AND since < $2 AND until > $1 RETURNING since, until", known.Since, known.Until)
	if err != nil {
		return err
	}
	return t.addGaps(rest)
}
