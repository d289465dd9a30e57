package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote/usage"
)

// Add stores an entry; on a server only once per ID.
func (s *Store) Add(ctx context.Context, e *usage.Entry) error {
	if !s.writes {
		return errReadOnly
	}
	return s.transaction(ctx, func(t *tx) {
		if t.isNew(e.ID) {
			t.addSums(e.Sums)
			t.addMark(e)
		}
	})
}

// isNew notes an ID on a server. A file never has a failed entry.
func (t *tx) isNew(id string) bool {
	isNew := !t.shared || id == ""
	if !isNew {
		t.rows([]any{&id}, func() { isNew = true },
			"INSERT INTO entries ({fleet,}id) VALUES ({id,}$1) ON CONFLICT DO NOTHING RETURNING id", id)
	}
	return isNew
}

func (t *tx) addSums(sums usage.Sums) {
	byHour, byDay, list := make(usage.Sums), make(usage.Sums), []string{}
	for key, sum := range sums {
		if of := t.options.Pseudonym; key.Kind == usage.OfUser && of != nil && key.Hour < t.nameless {
			key.Name = of(key.Name) // the hour already has pseudonyms
		}
		key.Name = valid(key.Name)
		list = append(list, key.Name)
		byHour.Add(key, &sum)
		key.Hour = usage.DayOf(key.Hour, t.options.In)
		byDay.Add(key, &sum)
	}
	names := t.addNames(list)
	t.insert(hourSums, byHour, names)
	t.insert(daySums, byDay, names)
}

// insert sorts rows, to write pages in order.
func (t *tx) insert(to sumTable, sums usage.Sums, names map[string]int64) {
	keys := slices.SortedFunc(maps.Keys(sums), func(a, b usage.SumKey) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Hour, b.Hour),
			cmp.Compare(names[a.Name], names[b.Name]))
	})
	for chunk := range slices.Chunk(keys, maxRows) {
		list := valuesList{prefix: "{id,}"}
		for _, key := range chunk {
			sum := sums[key]
			list.add(append([]any{int64(key.Kind), key.Hour, names[key.Name]}, amountsOf(&sum)...)...)
		}
		t.run(to.upsert(list.text.String()), list.args...)
	}
}

// addNames gives ids to names in sorted order, so that writers don't deadlock.
func (t *tx) addNames(names []string) map[string]int64 {
	if t.shared { // keeps other writers from removing names without rows
		t.run("LOCK TABLE names IN ROW EXCLUSIVE MODE")
	}
	slices.Sort(names)
	names = slices.Compact(names)
	ids := t.known(names)
	missing := slices.DeleteFunc(names, func(name string) bool { _, found := ids[name]; return found })
	for chunk := range slices.Chunk(missing, maxRows) {
		list := listOf(chunk)
		t.run("INSERT INTO names (name) "+list.text.String()+" ON CONFLICT DO NOTHING", list.args...)
	}
	maps.Copy(ids, t.known(missing))
	return ids
}

// addMark notes how far usage is stored. A late entry closes a gap that another controller found.
func (t *tx) addMark(e *usage.Entry) {
	t.closeGaps(usage.Gap{Since: e.Since, Until: e.Until})
	t.addGaps(e.Gaps)
	if e.Until >= t.Until || !t.shared {
		t.databaseFacts.Mark = e.Mark
	}
	if t.begun == 0 || t.begun > e.Since {
		t.begun = e.Since
	}
}

func (t *tx) addGaps(gaps []usage.Gap) {
	for _, gap := range gaps {
		t.run("INSERT INTO gaps ({fleet,}{part,}since, until) VALUES ({id,}{'',}$1, $2) ON CONFLICT ({fleet,}{part,}"+
			"since) DO UPDATE SET until = {greatest}(gaps.until, excluded.until)", gap.Since, gap.Until)
	}
}

func (t *tx) closeGaps(known usage.Gap) {
	var gap usage.Gap
	var rest []usage.Gap
	t.rows([]any{&gap.Since, &gap.Until}, func() {
		for _, part := range [][2]int64{{gap.Since, known.Since}, {known.Until, gap.Until}} {
			if part[0] < part[1] {
				rest = append(rest, usage.Gap{Since: part[0], Until: part[1]})
			}
		}
	}, "DELETE FROM gaps WHERE {fleet}{part} AND since < $2 AND until > $1 RETURNING since, until", known.Since,
		known.Until)
	t.addGaps(rest)
}

// Tidy removes old data, and gives users of old days their pseudonyms. Once a day it removes unused names. From a
// nearly full file it removes the oldest hours early, but not the sums of days.
func (s *Store) Tidy(ctx context.Context, now time.Time) (early string, err error) {
	if !s.writes {
		return "", errReadOnly
	}
	hours := usage.DayOf(now.Add(-s.options.KeepHours).Unix(), s.options.In)
	days := usage.DayOf(now.Add(-s.options.KeepDays).Unix(), s.options.In)
	for from, before := range map[sumTable]int64{hourSums: hours, daySums: days} {
		_, err := s.each(ctx, func(t *tx) bool { // in small steps
			start, found := t.oldest(from)
			if !found || start >= before {
				return false
			}
			t.remove(from, start)
			return true
		})
		if err != nil {
			return "", err
		}
	}
	renamed, err := s.each(ctx, func(t *tx) bool { return t.usePseudonyms(now) })
	if err != nil && !errors.Is(err, usage.ErrFull) {
		return "", err
	}
	tidied := false // today
	err = s.transaction(ctx, func(t *tx) {
		tidied = t.hours == hours
		t.forgetOld(hours, days)
	})
	if err == nil && (renamed || !tidied) {
		err = s.removeNames(ctx, s)
	}
	if err != nil && !errors.Is(err, usage.ErrFull) {
		return "", err
	}
	return s.makeRoom(ctx)
}

// oldest returns a table's first start, querying by kind like the index.
func (t *tx) oldest(in sumTable) (start int64, found bool) {
	first := make([]string, usage.OfAll)
	for i := range first {
		first[i] = fmt.Sprintf("SELECT min(r.start) AS start FROM %s r WHERE {fleet} AND r.kind = %d", in, i+1)
	}
	return t.number("SELECT min(start) FROM (" + strings.Join(first, " UNION ALL ") + ") f")
}

func (t *tx) remove(from sumTable, start int64) {
	t.run(fmt.Sprintf("DELETE FROM %s AS r WHERE {fleet}%s AND r.start = $1", from, allKinds), start)
}

func (t *tx) forgetOld(hours, days int64) {
	t.hours = max(t.hours, hours)
	if t.begun != 0 {
		t.begun = max(t.begun, days)
	}
	t.run("DELETE FROM gaps WHERE {fleet} AND until < $1", days)
	if t.shared {
		t.run("DELETE FROM entries WHERE {fleet} AND at < now() - interval '" + keepEntries + "'")
	}
}

// makeRoom removes a file's oldest hours until a tenth of it is free.
func (s *Store) makeRoom(ctx context.Context) (early string, err error) {
	if s.shared {
		return "", nil // the disk is its administrator's concern
	}
	var until int64
	_, err = s.each(ctx, func(t *tx) bool {
		var pages, unused int64
		t.scan([]any{&pages, &unused},
			"SELECT page_count, freelist_count FROM pragma_page_count(), pragma_freelist_count()")
		if s.options.MaxBytes-(pages-unused)*pageSize >= s.options.MaxBytes/10 {
			return false
		}
		start, found := t.oldest(hourSums)
		if !found {
			return false
		}
		until = max(until, start)
		t.hours = max(t.hours, usage.NextDay(start, t.options.In)) // that day is only reported as a whole
		t.remove(hourSums, start)
		return true
	})
	if until > 0 {
		early = fmt.Sprintf("it has reached its size of %d MB: what it kept by hour until %s was removed, and what it "+
			"kept by day stays", s.options.MaxBytes/1e6,
			time.Unix(until, 0).In(s.options.In).Format("2006-01-02 15:04"))
	}
	return early, err
}

func (t *tx) known(names []string) map[string]int64 {
	ids := make(map[string]int64)
	for chunk := range slices.Chunk(names, maxRows) {
		var id int64
		var name string
		list := listOf(chunk)
		t.rows([]any{&id, &name}, func() { ids[name] = id },
			"SELECT id, name FROM names WHERE name IN ("+list.text.String()+")", list.args...)
	}
	return ids
}

func (t *tx) rename(names map[string]string, since, until int64) {
	former := t.known(slices.Collect(maps.Keys(names)))
	next := t.addNames(slices.Collect(maps.Values(names)))
	var pairs valuesList
	for user, name := range names {
		if id, found := former[user]; found && id != next[name] {
			pairs.add(id, next[name])
		}
	}
	if pairs.text.Len() == 0 {
		return
	}
	renamed := "WITH renamed (former, next) AS MATERIALIZED (" + pairs.text.String() + ") "
	for _, in := range sumTables {
		of := fmt.Sprintf("{fleet} AND r.kind = %d AND r.start >= %d AND r.start < %d", usage.OfUser, since, until)
		// SQLite reads the first table of a CROSS JOIN once, not once per user.
		t.run(renamed + in.upsert(fmt.Sprintf("SELECT {id,}r.kind, r.start, renamed.next, %s FROM %s r CROSS JOIN "+
			"renamed WHERE renamed.former = r.name AND %s GROUP BY r.kind, r.start, renamed.next", summed(), in, of)))
		t.run(fmt.Sprintf("%sDELETE FROM %s AS r WHERE %s AND r.name IN (SELECT former FROM renamed)", renamed, in, of))
	}
}

const unusedNames = "id NOT IN (SELECT name FROM hour_sums UNION SELECT name FROM day_sums)"

// usePseudonyms replaces the users of one old day, if any.
func (t *tx) usePseudonyms(now time.Time) (done bool) {
	before := usage.DayOf(now.Add(-t.options.PseudonymsAfter).Unix(), t.options.In)
	if t.options.Pseudonym == nil || before <= t.nameless {
		return false
	}
	const during = " r WHERE {fleet} AND r.kind = $1 AND r.start >= $2 AND r.start < $3"
	first, found := t.number("SELECT min(start) FROM (SELECT min(r.start) AS start FROM hour_sums"+during+
		" UNION ALL SELECT min(r.start) AS start FROM day_sums"+during+") f", int64(usage.OfUser), t.nameless, before)
	if !found {
		return false
	}
	day := usage.DayOf(first, t.options.In)
	next := usage.NextDay(day, t.options.In)
	names, user := make(map[string]string), ""
	t.rows([]any{&user}, func() {
		if pseudonym := valid(t.options.Pseudonym(user)); pseudonym != user {
			names[user] = pseudonym
		}
	}, "SELECT name FROM names WHERE id IN (SELECT r.name FROM hour_sums"+during+
		" UNION SELECT r.name FROM day_sums"+during+")", int64(usage.OfUser), day, next)
	t.rename(names, day, next)
	t.nameless = next
	return true
}
