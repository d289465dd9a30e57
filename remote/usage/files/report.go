package files

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// Report implements store.Store. The part of a user has sums by user and by day only.
func (s *Store) Report(ctx context.Context, q store.Query) (r store.Report, err error) {
	f, err := s.facts()
	if err != nil {
		return r, err
	}
	r = store.Report{Since: q.Since, Until: q.Until, Begun: f.Begun, Mark: store.Mark{Until: f.Until, Ended: f.Ended}}
	parts := store.Parts(q.Since, q.Until, f.Hours, s.options.In)
	if len(parts) > 0 {
		r.Since, r.Until = parts[0].Since, parts[len(parts)-1].Until
	}
	rows := make(map[string]usage.Sum)
	for _, p := range parts {
		p.Since, p.Until = max(p.Since, usage.DayOf(f.Begun, s.options.In)), min(p.Until, usage.NextDay(f.Last, s.options.In))
		for start := usage.DayOf(p.Since, s.options.In); start < p.Until; start = usage.NextDay(start, s.options.In) {
			if err := ctx.Err(); err != nil {
				return r, err
			}
			if err := s.sum(&r, rows, &q, p, start); err != nil {
				return r, err
			}
		}
	}
	for name, one := range rows {
		r.Rows = append(r.Rows, store.Row{Name: name, Sum: one})
	}
	slices.SortFunc(r.Rows, func(a, b store.Row) int { return cmp.Compare(a.Name, b.Name) })
	for _, gap := range f.Gaps {
		r.Missing += max(min(gap.Until, r.Until)-max(gap.Since, r.Since), 0)
	}
	return r, nil
}

// sum adds what a day has of a part.
func (s *Store) sum(r *store.Report, rows map[string]usage.Sum, q *store.Query, p store.Part, start int64) error {
	all, _, err := readDay(s.daysIn, nameOf(start, s.options.In))
	if err != nil {
		return err
	}
	add := func(name string, one *usage.Sum) {
		row := rows[name]
		row.Add(one)
		rows[name] = row
	}
	for key := range all {
		if one := all[key]; key.Hour >= p.Since && key.Hour < p.Until {
			if key.Kind == usage.OfAll {
				r.Total.Add(&one)
			}
			switch {
			case q.ByDay && key.Kind == usage.OfAll:
				add(time.Unix(start, 0).In(s.options.In).Format(time.DateOnly), &one)
			case !q.ByDay && key.Kind == q.Kind:
				add(key.Name, &one)
			}
		}
	}
	return nil
}

// Tidy implements store.Store: it keeps old days without their hours, and removes those that are
// too old, also in the users' parts.
func (s *Store) Tidy(ctx context.Context, now time.Time) (early string, err error) {
	f, err := s.facts()
	if err != nil || f.Begun == 0 || !s.writes {
		return "", err
	}
	hours := usage.DayOf(now.Add(-s.options.KeepHours).Unix(), s.options.In)
	days := usage.DayOf(now.Add(-s.options.KeepDays).Unix(), s.options.In)
	f.Hours, f.Begun = max(f.Hours, hours), max(f.Begun, days)
	f.Gaps = slices.DeleteFunc(f.Gaps, func(g store.Gap) bool { return g.Until < days })
	if err := s.top.PutJSON(factsName, &f, 0o644, true); err != nil { // first: a day that has hours can be read as a whole
		return "", translated(err)
	}
	if err := s.tidy(ctx, s.days, hours, days, nil); err != nil {
		return "", translated(err)
	}
	entries, err := os.ReadDir(s.top.Path)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		uid, err := strconv.ParseUint(e.Name(), 10, 32)
		if err != nil || !e.IsDir() {
			continue
		}
		if err := s.tidyOwn(ctx, e.Name(), uint32(uid), hours, days); err != nil {
			return "", translated(err)
		}
	}
	return "", nil
}

func (s *Store) tidyOwn(ctx context.Context, name string, uid uint32, hours, days int64) error {
	dir, err := s.ownFolder(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return s.tidy(ctx, dir, hours, days, &uid)
}

// tidy tidies a folder of days.
func (s *Store) tidy(ctx context.Context, dir *folder.Folder, hours, days int64, uid *uint32) error {
	entries, err := os.ReadDir(dir.Path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		date, err := time.ParseInLocation(time.DateOnly, strings.TrimSuffix(e.Name(), filepath.Ext(e.Name())), s.options.In)
		if err != nil || filepath.Ext(e.Name()) != ".json" || ctx.Err() != nil {
			continue
		}
		switch start := usage.DayOf(date.Unix(), s.options.In); {
		case start < days:
			err = dir.Remove(e.Name())
		case start < hours:
			err = s.rollUp(dir, e.Name(), start, uid)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// rollUp keeps a day without its hours.
func (s *Store) rollUp(dir *folder.Folder, name string, start int64, uid *uint32) error {
	all, whole, err := readDay(in(dir), name)
	if err != nil || whole {
		return err
	}
	data, err := all.wholeDay(start).encode(true)
	if err != nil {
		return err
	}
	if err = dir.Put(name, data, 0o600, true); err == nil && uid != nil {
		err = folder.AllowToRead(dir.Join(name), *uid)
	}
	return err
}
