package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot"
)

// maxRecords is how many rows a statement has.
const maxRecords = 10_000

// Add keeps an entry; on a server one with the id of an earlier one only once.
func (s *Store) Add(ctx context.Context, e *usage.Entry) error {
	if !s.writes {
		return errReadOnly
	}
	return s.transaction(ctx, func(t *tx) error {
		if isNew, err := s.isNew(t, e.ID); err != nil || !isNew {
			return err
		}
		if err := t.addRows(&e.Batch); err != nil {
			return err
		}
		if err := t.addSums(&e.Batch); err != nil {
			return err
		}
		return t.addMark(e)
	})
}

// addRows adds rows in the order of their keys: so pages are written one after the other. The rows of days
// before facts.days are summed up already, so they are added to those of their day, too.
func (t *tx) addRows(b *usage.Batch) error {
	keys := slices.SortedFunc(maps.Keys(b.Rows), func(a, b usage.Key) int {
		return cmp.Or(cmp.Compare(a.Hour, b.Hour), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Device, b.Device), cmp.Compare(a.User, b.User), cmp.Compare(a.EID, b.EID))
	})
	for chunk := range slices.Chunk(keys, maxRecords) {
		var hours, days [][]any
		names := make(map[string]struct{})
		for i := range chunk {
			key := &chunk[i]
			amounts := b.Rows[*key]
			host, model, user := valid(string(key.Host)), valid(key.Model), t.user(string(key.User), key.Hour)
			row := append([]any{key.Hour, host, int(key.Device), model, user, shortened(key.EID)}, amountsOf(&amounts)...)
			hours = append(hours, row)
			if key.Hour < t.days {
				day := slices.Clone(row)
				day[0] = usage.DayOf(key.Hour, t.options.In)
				days = append(days, day)
			}
			names[host], names[model], names[user] = struct{}{}, struct{}{}, struct{}{}
		}
		if err := t.addNames(names); err != nil {
			return err
		}
		if err := t.insertRows(&hourRows, hours); err != nil {
			return err
		}
		if err := t.insertRows(&dayRows, days); err != nil {
			return err
		}
	}
	return nil
}

// user is the name of a user, or the pseudonym in an hour whose users have pseudonyms already.
func (t *tx) user(name string, hour int64) string {
	if of := t.options.Pseudonyms.Of; of != nil && hour < t.nameless {
		name = of(name)
	}
	return valid(name)
}

// shortened is an environment's id as it is stored: in SQLite a number takes less room.
func shortened(eid snapshot.EnvID) any {
	if n, err := strconv.ParseInt(string(eid), 10, 64); err == nil && strconv.FormatInt(n, 10) == string(eid) {
		return n
	}
	return valid(string(eid))
}

// addNames gives ids to names that have none.
func (t *tx) addNames(names map[string]struct{}) error {
	list := make([][]any, 0, len(names))
	for name := range names {
		list = append(list, []any{name})
	}
	encoded, err := array(list)
	if err != nil {
		return err
	}
	return t.run("INSERT INTO names (name) SELECT r.name FROM "+elements("$1", field{"name", ""})+" r WHERE NOT EXISTS (SELECT 1 FROM names n WHERE n.name = r.name) "+
		"ORDER BY 1 ON CONFLICT DO NOTHING", encoded)
}

// rowsWithKeys are rows of a parameter, with the ids of their names.
func rowsWithKeys(parameter string) string {
	return records(parameter, field{"start", "bigint"}, field{"host", ""}, field{"device", "integer"}, field{"model", ""}, field{"username", ""}, field{"eid", ""}) +
		" r JOIN names h ON h.name = r.host JOIN names m ON m.name = r.model"
}

// insertRows adds rows to a table of them, and gives ids to their devices. Amounts of one key are summed up
// first: names that differ only in what databases don't take are the same.
func (t *tx) insertRows(to *table, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	list, err := array(rows)
	if err != nil {
		return err
	}
	err = t.run("INSERT INTO devices (host, device, model) SELECT DISTINCT h.id, r.device, m.id FROM "+rowsWithKeys("$1")+
		" WHERE NOT EXISTS (SELECT 1 FROM devices d WHERE d.host = h.id AND d.device = r.device AND d.model = m.id) ORDER BY 1, 2, 3 ON CONFLICT DO NOTHING", list)
	if err != nil {
		return err
	}
	return t.run(to.upsert("r.start, d.id, u.id, r.eid",
		rowsWithKeys("$2")+" JOIN names u ON u.name = r.username JOIN devices d ON d.host = h.id AND d.device = r.device AND d.model = m.id"), t.fleet, list)
}

// addSums adds sums. Those of months before facts.months are summed up already.
func (t *tx) addSums(b *usage.Batch) error {
	var hours, days, months [][]any
	names := make(map[string]struct{})
	for key := range b.Sums {
		sum, name := b.Sums[key], valid(key.Name)
		if key.Kind == usage.ByUser {
			name = t.user(key.Name, key.Hour)
		}
		hour := append([]any{int(key.Kind), key.Hour, name, sum.Peak}, amountsOf(&sum.Amounts)...)
		day := slices.Clone(hour)
		day[1] = usage.DayOf(key.Hour, t.options.In)
		hours, days, names[name] = append(hours, hour), append(days, day), struct{}{}
		if key.Hour < t.facts.months {
			month := slices.Clone(hour)
			month[1] = usage.MonthOf(key.Hour, t.options.In)
			months = append(months, month)
		}
	}
	if err := t.addNames(names); err != nil {
		return err
	}
	for _, to := range []struct {
		*table
		sums [][]any
	}{{&hourSums, hours}, {&daySums, days}, {&monthSums, months}} {
		for chunk := range slices.Chunk(to.sums, maxRecords) {
			list, err := array(chunk)
			if err == nil {
				err = t.run(to.upsert("r.kind, r.start, n.id", records("$2", field{"kind", "integer"}, field{"start", "bigint"}, field{"name", ""}, field{"peak", "bigint"})+
					" r JOIN names n ON n.name = r.name"), t.fleet, list)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
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
		err := t.run("INSERT INTO gaps ({fleet,}{part,}since, until) VALUES ({$1,}{'',}$2, $3) ON CONFLICT ({fleet,}{part,}since) DO UPDATE SET until = {greatest}(gaps.until, excluded.until)",
			t.fleet, gap.Since, gap.Until)
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
	}, "DELETE FROM gaps WHERE {fleet}{part} AND since < $3 AND until > $2 RETURNING since, until", t.fleet, known.Since, known.Until)
	if err != nil {
		return err
	}
	return t.addGaps(rest)
}
