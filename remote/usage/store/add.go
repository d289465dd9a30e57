package store

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot"
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
		if err := t.addBatch(&e.Batch); err != nil {
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

// device is a row of devices: a host, an index and a model. Hosts and models are names.
type device [3]int64

func (d *device) fields() []any { return []any{&d[0], &d[1], &d[2]} }

// addBatch adds rows and sums. What is earlier than the rows of days and the sums of months that are written
// is added to those, too.
func (t *tx) addBatch(b *usage.Batch) error {
	names, err := t.addNames(t.namesOf(b))
	if err != nil {
		return err
	}
	deviceOf := func(key *usage.Key) device {
		return device{names[valid(string(key.Host))], int64(key.Device), names[valid(key.Model)]}
	}
	var devices []device
	for key := range b.Rows {
		devices = append(devices, deviceOf(&key))
	}
	slices.SortFunc(devices, func(a, b device) int { return slices.Compare(a[:], b[:]) })
	ids, err := idsOf(t, "devices", "host, device, model", slices.Compact(devices), (*device).fields)
	if err != nil {
		return err
	}
	added := make(additions)
	for key, amounts := range b.Rows {
		k := rowKey{[3]int64{key.Hour, ids[deviceOf(&key)], names[t.user(string(key.User), key.Hour)]}, t.eid(key.EID)}
		added.add(&hourRows, k, &usage.Sum{Amounts: amounts})
		if key.Hour < t.days {
			k.ids[0] = usage.DayOf(key.Hour, t.options.In)
			added.add(&dayRows, k, &usage.Sum{Amounts: amounts})
		}
	}
	for key, sum := range b.Sums {
		k := rowKey{[3]int64{int64(key.Kind), key.Hour, names[t.nameOf(&key)]}, nil}
		added.add(&hourSums, k, &sum)
		k.ids[1] = usage.DayOf(key.Hour, t.options.In)
		added.add(&daySums, k, &sum)
		if key.Hour < t.facts.months {
			k.ids[1] = usage.MonthOf(key.Hour, t.options.In)
			added.add(&monthSums, k, &sum)
		}
	}
	for _, to := range t.tables() {
		if err := t.insert(to, added[to]); err != nil {
			return err
		}
	}
	return nil
}

// namesOf are the names in a batch.
func (t *tx) namesOf(b *usage.Batch) (names []string) {
	for key := range b.Rows {
		names = append(names, valid(string(key.Host)), valid(key.Model), t.user(string(key.User), key.Hour))
	}
	for key := range b.Sums {
		names = append(names, t.nameOf(&key))
	}
	return names
}

func (t *tx) nameOf(key *usage.SumKey) string {
	if key.Kind == usage.ByUser {
		return t.user(key.Name, key.Hour)
	}
	return valid(key.Name)
}

// user is the name of a user, or the pseudonym in an hour whose users have pseudonyms already.
func (t *tx) user(name string, hour int64) string {
	if of := t.options.Pseudonyms.Of; of != nil && hour < t.nameless {
		name = of(name)
	}
	return valid(name)
}

// eid is an environment's id as it is stored: in SQLite a number takes less room.
func (t *tx) eid(eid snapshot.EnvID) any {
	if n, err := strconv.ParseInt(string(eid), 10, 64); !t.shared && err == nil && strconv.FormatInt(n, 10) == string(eid) {
		return n
	}
	return valid(string(eid))
}

// addNames gives ids to names that have none, and returns those of all.
func (t *tx) addNames(names []string) (map[string]int64, error) {
	if t.shared { // no other writer removes names that have no rows yet
		if err := t.run("LOCK TABLE names IN ROW EXCLUSIVE MODE"); err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	return idsOf(t, "names", "name", slices.Compact(names), nameField)
}

func nameField(name *string) []any { return []any{name} }

// idsOf are the ids of rows by their other columns. Rows that aren't there are added in the given order: so
// writers of several fleets don't wait for each other in a circle.
func idsOf[Row comparable](t *tx, in, columns string, rows []Row, fields func(*Row) []any) (map[Row]int64, error) {
	ids := make(map[Row]int64, len(rows))
	if err := find(t, in, columns, rows, fields, ids); err != nil {
		return nil, err
	}
	var missing []Row
	for _, row := range rows {
		if _, found := ids[row]; !found {
			missing = append(missing, row)
		}
	}
	for chunk := range slices.Chunk(missing, maxRows) {
		list := listOf(chunk, fields)
		err := t.run("INSERT INTO "+in+" ("+columns+") "+list.text.String()+" ON CONFLICT DO NOTHING", list.args...)
		if err != nil {
			return nil, err
		}
	}
	return ids, find(t, in, columns, missing, fields, ids)
}

// find finds ids of rows by their other columns, as far as these are there. It reads all rows with the same first
// column: all devices of a host.
func find[Row comparable](t *tx, in, columns string, rows []Row, fields func(*Row) []any, ids map[Row]int64) error {
	for chunk := range slices.Chunk(rows, maxRows) {
		var id int64
		var row Row
		first, _, _ := strings.Cut(columns, ", ")
		list := listOf(chunk, func(row *Row) []any { return fields(row)[:1] })
		err := t.rows(append([]any{&id}, fields(&row)...), func() { ids[row] = id },
			"SELECT id, "+columns+" FROM "+in+" WHERE "+first+" IN ("+list.text.String()+")", list.args...)
		if err != nil {
			return err
		}
	}
	return nil
}

// rowKey is the key of a row with amounts: start, device, user and eid, or kind, start and name.
type rowKey struct {
	ids [3]int64
	eid any // nil for a sum
}

// additions are what is added to tables. Names that differ only in what databases don't take are the same.
type additions map[*table]map[rowKey]*usage.Sum

func (a additions) add(to *table, key rowKey, sum *usage.Sum) {
	if a[to] == nil {
		a[to] = make(map[rowKey]*usage.Sum)
	}
	if a[to][key] == nil {
		a[to][key] = new(usage.Sum)
	}
	a[to][key].Add(sum)
}

// insert adds rows in the order of their keys: so pages are written one after the other.
func (t *tx) insert(to *table, sums map[rowKey]*usage.Sum) error {
	keys := slices.Collect(maps.Keys(sums))
	slices.SortFunc(keys, func(a, b rowKey) int { return slices.Compare(a.ids[:], b.ids[:]) })
	for chunk := range slices.Chunk(keys, maxRows) {
		list := list{prefix: "{id,}"}
		for i := range chunk {
			k, sum := &chunk[i], sums[chunk[i]]
			row := []any{&k.ids[0], &k.ids[1], &k.ids[2]}
			if !to.sums {
				row = append(row, k.eid)
			}
			row = append(row, amountsOf(&sum.Amounts)...)
			if to.sums {
				row = append(row, &sum.Peak)
			}
			list.add(row...)
		}
		if err := t.run(to.upsert(list.text.String()), list.args...); err != nil {
			return err
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
