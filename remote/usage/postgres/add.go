package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot"
)

var errReadOnly = errors.New("it was opened to read")

// Add keeps an entry; one with the id of an earlier one only once.
func (s *Store) Add(ctx context.Context, e *store.Entry) error {
	if !s.writes {
		return errReadOnly
	}
	return s.transaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
		kept, err := s.lock(ctx, tx)
		if err != nil {
			return err
		}
		if e.ID != "" {
			tag, err := tx.Exec(ctx, "INSERT INTO genv_usage.entries (fleet, id) VALUES ($1, $2) ON CONFLICT DO NOTHING", s.fleet, e.ID)
			if err != nil || tag.RowsAffected() == 0 {
				return err // it is there
			}
		}
		return s.addEntry(ctx, tx, s.withPseudonyms(e, kept.nameless), kept.days)
	})
}

// addEntry adds an entry to all tables. Days before days are summed up already, so their rows are
// added to the table days, too.
func (s *Store) addEntry(ctx context.Context, tx pgx.Tx, e *store.Entry, days int64) error {
	r := rowsOf(&e.Batch)
	if err := addKeys(ctx, tx, e, &r); err != nil {
		return err
	}
	if err := s.insertRows(ctx, tx, "hours", &r); err != nil {
		return err
	}
	late := r.daysBefore(days, s.options.In)
	if err := s.insertRows(ctx, tx, "days", &late); err != nil {
		return err
	}
	if err := s.addSums(ctx, tx, e); err != nil {
		return err
	}
	return s.addMark(ctx, tx, e)
}

// progress is how far the fleet's usage is summed up.
type progress struct {
	days     int64 // up to when the rows of days are written
	nameless int64 // up to when users have pseudonyms
}

// lock lets the writers of a fleet write one after the other.
func (s *Store) lock(ctx context.Context, tx pgx.Tx) (kept progress, err error) {
	err = tx.QueryRow(ctx, "SELECT days, nameless FROM genv_usage.fleets WHERE id = $1 FOR UPDATE", s.fleet).Scan(&kept.days, &kept.nameless)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("the fleet %q is gone from the database: start the controller again", s.options.Fleet)
	}
	return kept, err
}

// withPseudonyms is an entry in which the users of old days have pseudonyms.
func (s *Store) withPseudonyms(e *store.Entry, nameless int64) *store.Entry {
	of := s.options.Pseudonyms.Of
	if of == nil || nameless == 0 {
		return e
	}
	with := *e
	with.Batch = usage.NewBatch()
	for key, amounts := range e.Rows {
		if key.Hour < nameless {
			key.User = snapshot.Username(of(string(key.User)))
		}
		with.Merge(&usage.Batch{Rows: map[usage.Key]usage.Amounts{key: amounts}})
	}
	for key := range e.Sums {
		sum := e.Sums[key]
		if key.Kind == usage.ByUser && key.Hour < nameless {
			key.Name = of(key.Name)
		}
		with.Merge(&usage.Batch{Sums: map[usage.SumKey]usage.Sum{key: sum}})
	}
	return &with
}

// rows are usage as columns.
type rows struct {
	start, device          []int64
	host, model, user, eid []string
	amounts                [][]int64
}

// rowsOf are those of a batch, the oldest hour first.
func rowsOf(b *usage.Batch) (r rows) {
	r.amounts = make([][]int64, len(columns))
	keys := slices.SortedFunc(maps.Keys(b.Rows), func(a, b usage.Key) int {
		return cmp.Or(cmp.Compare(a.Hour, b.Hour), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Device, b.Device), cmp.Compare(a.User, b.User), cmp.Compare(a.EID, b.EID))
	})
	for i := range keys {
		key := &keys[i]
		r.start, r.device = append(r.start, key.Hour), append(r.device, int64(key.Device))
		r.host, r.model = append(r.host, valid(string(key.Host))), append(r.model, valid(key.Model))
		r.user, r.eid = append(r.user, valid(string(key.User))), append(r.eid, valid(string(key.EID)))
		amounts := b.Rows[*key]
		for i, amount := range amountsOf(&amounts) {
			r.amounts[i] = append(r.amounts[i], *amount)
		}
	}
	return r
}

// daysBefore are the rows before a moment, with the day instead of the hour. The rows are in the
// order of time.
func (r *rows) daysBefore(moment int64, in *time.Location) rows {
	n, _ := slices.BinarySearch(r.start, moment)
	early := rows{device: r.device[:n], host: r.host[:n], model: r.model[:n], user: r.user[:n], eid: r.eid[:n]}
	for _, hour := range r.start[:n] {
		early.start = append(early.start, usage.DayOf(hour, in))
	}
	for _, amounts := range r.amounts {
		early.amounts = append(early.amounts, amounts[:n])
	}
	return early
}

// addKeys gives ids to names and devices that have none.
func addKeys(ctx context.Context, tx pgx.Tx, e *store.Entry, r *rows) error {
	names := slices.Concat(r.host, r.model, r.user)
	for key := range e.Sums {
		names = append(names, valid(key.Name))
	}
	if err := addNames(ctx, tx, names); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO genv_usage.devices (host, device, model)
		SELECT h.id, r.device, m.id FROM (SELECT DISTINCT * FROM unnest($1::text[], $2::integer[], $3::text[]) AS r (host, device, model)) r
		JOIN genv_usage.names h ON h.name = r.host JOIN genv_usage.names m ON m.name = r.model
		EXCEPT SELECT host, device, model FROM genv_usage.devices ON CONFLICT DO NOTHING`, r.host, r.device, r.model)
	return err
}

// insertRows adds rows to a table of them.
func (s *Store) insertRows(ctx context.Context, tx pgx.Tx, table string, r *rows) error {
	if len(r.start) == 0 {
		return nil
	}
	args := []any{s.fleet, r.start, r.host, r.device, r.model, r.user, r.eid}
	for _, list := range r.amounts {
		args = append(args, list)
	}
	// Amounts of one key are summed up first: names that differ only in what PostgreSQL doesn't
	// take are the same.
	_, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO genv_usage.%[1]s SELECT $1::integer, r.start, d.id, u.id, r.eid, %[2]s
		FROM unnest($2::bigint[], $3::text[], $4::integer[], $5::text[], $6::text[], $7::text[], %[3]s) AS r (start, host, device, model, username, eid, %[4]s)
		JOIN genv_usage.names h ON h.name = r.host JOIN genv_usage.names m ON m.name = r.model JOIN genv_usage.names u ON u.name = r.username
		JOIN genv_usage.devices d ON d.host = h.id AND d.device = r.device AND d.model = m.id
		GROUP BY r.start, d.id, u.id, r.eid%[5]s`,
		table, sums(), arrays(8, len(columns), "bigint"), strings.Join(columns, ", "), more(table)), args...)
	return err
}

func (s *Store) addSums(ctx context.Context, tx pgx.Tx, e *store.Entry) error {
	var kinds, hours, days, peaks []int64
	var names []string
	amounts := make([][]int64, len(columns))
	for key := range e.Sums {
		sum := e.Sums[key]
		kinds, names, peaks = append(kinds, int64(key.Kind)), append(names, valid(key.Name)), append(peaks, sum.Peak)
		hours, days = append(hours, key.Hour), append(days, usage.DayOf(key.Hour, s.options.In))
		for i, amount := range amountsOf(&sum.Amounts) {
			amounts[i] = append(amounts[i], *amount)
		}
	}
	for table, starts := range map[string][]int64{"hour_sums": hours, "day_sums": days} {
		args := []any{s.fleet, kinds, starts, names, peaks}
		for _, list := range amounts {
			args = append(args, list)
		}
		_, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO genv_usage.%[1]s SELECT $1::integer, r.kind, r.start, n.id, %[2]s, max(r.peak)
			FROM unnest($2::integer[], $3::bigint[], $4::text[], $5::bigint[], %[3]s) AS r (kind, start, name, peak, %[4]s)
			JOIN genv_usage.names n ON n.name = r.name
			GROUP BY r.kind, r.start, n.id%[5]s`,
			table, sums(), arrays(6, len(columns), "bigint"), strings.Join(columns, ", "),
			more(table, greatest(table))), args...)
		if err != nil {
			return err
		}
	}
	return nil
}

// addMark notes how far the fleet is kept, and the gaps. An entry that comes late ends the gap
// that another controller found meanwhile.
func (s *Store) addMark(ctx context.Context, tx pgx.Tx, e *store.Entry) error {
	if err := s.closeGaps(ctx, tx, store.Gap{Since: e.Since, Until: e.Until}); err != nil {
		return err
	}
	if err := s.addGaps(ctx, tx, e.Gaps); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO genv_usage.marks VALUES ($1, '', $2, $3)
		ON CONFLICT ON CONSTRAINT marks_pkey DO UPDATE SET until = excluded.until, ended = excluded.ended WHERE marks.until <= excluded.until`,
		s.fleet, e.Until, e.Ended)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "UPDATE genv_usage.fleets SET begun = $2 WHERE id = $1 AND (begun = 0 OR begun > $2)", s.fleet, e.Since)
	return err
}

func (s *Store) addGaps(ctx context.Context, tx pgx.Tx, gaps []store.Gap) error {
	for _, gap := range gaps {
		_, err := tx.Exec(ctx, `INSERT INTO genv_usage.gaps VALUES ($1, '', $2, $3)
			ON CONFLICT ON CONSTRAINT gaps_pkey DO UPDATE SET until = greatest(gaps.until, excluded.until)`, s.fleet, gap.Since, gap.Until)
		if err != nil {
			return err
		}
	}
	return nil
}

// closeGaps takes a time that is known out of the gaps.
func (s *Store) closeGaps(ctx context.Context, tx pgx.Tx, known store.Gap) error {
	found, err := tx.Query(ctx, "DELETE FROM genv_usage.gaps WHERE fleet = $1 AND part = '' AND since < $3 AND until > $2 RETURNING since, until",
		s.fleet, known.Since, known.Until)
	if err != nil {
		return err
	}
	gaps, err := pgx.CollectRows(found, pgx.RowToStructByPos[store.Gap])
	if err != nil {
		return err
	}
	var rest []store.Gap
	for _, gap := range gaps {
		for _, part := range []store.Gap{{Since: gap.Since, Until: known.Since}, {Since: known.Until, Until: gap.Until}} {
			if part.Since < part.Until {
				rest = append(rest, part)
			}
		}
	}
	return s.addGaps(ctx, tx, rest)
}
