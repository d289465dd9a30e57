package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-3119e985/genv/remote/usage"
)

// rowsOfUser are the rows of a fleet about users, of all tables. $1 is the fleet and $2 their names.
var rowsOfUser = func() string {
	var list []string
	for _, t := range tables {
		list = append(list, fmt.Sprintf("SELECT r.start FROM genv_usage.%s r JOIN genv_usage.names n ON n.id = r.%s WHERE r.fleet = $1 AND n.name = ANY($2)%s", t.name, t.user, t.of))
	}
	return strings.Join(list, " UNION ALL ")
}()

// table is one with amounts.
type table struct {
	name string
	user string // the column with the id of the user's name
	of   string // a condition for rows of users
	keys string // further columns of the key, after the fleet
	peak string // how peaks are summed up; empty for a table without
}

var tables = []table{
	{"hours", `"user"`, "", "start, device, eid", ""},
	{"days", `"user"`, "", "start, device, eid", ""},
	{"hour_sums", "name", fmt.Sprintf(" AND kind = %d", usage.ByUser), "kind, start", "peak"},
	{"day_sums", "name", fmt.Sprintf(" AND kind = %d", usage.ByUser), "kind, start", "peak"},
}

// RowsOf implements store.Forgetter.
func (s *Store) RowsOf(ctx context.Context, users ...string) (count int64, err error) {
	err = s.transaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT count(*) FROM ("+rowsOfUser+") r", s.fleet, validAll(users)).Scan(&count)
	})
	return count, err
}

func validAll(names []string) []string {
	list := make([]string, len(names))
	for i, name := range names {
		list[i] = valid(name)
	}
	return list
}

// Forget implements store.Forgetter. It changes a day at a time, so that controllers wait for a
// moment only.
func (s *Store) Forget(ctx context.Context, users ...string) error {
	if !s.writes {
		return errReadOnly
	}
	users = validAll(users)
	to := make(map[string]string)
	for _, user := range users {
		to[user] = string(usage.Forgotten)
	}
	var first, last *int64
	err := s.transaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT min(start), max(start) FROM ("+rowsOfUser+") r", s.fleet, users).Scan(&first, &last)
	})
	if err != nil {
		return err
	}
	if last == nil {
		return s.removeNames(ctx)
	}
	for day := usage.DayOf(*first, s.options.In); day <= *last; day = usage.NextDay(day, s.options.In) {
		err := s.transaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := s.lock(ctx, tx); err != nil {
				return err
			}
			return s.rename(ctx, tx, to, day, usage.NextDay(day, s.options.In))
		})
		if err != nil {
			return err
		}
	}
	return s.removeNames(ctx)
}

// rename gives what users had in a time to other names.
func (s *Store) rename(ctx context.Context, tx pgx.Tx, names map[string]string, since, until int64) error {
	former := slices.Sorted(maps.Keys(names))
	var next []string
	for _, name := range former {
		next = append(next, names[name])
	}
	if err := addNames(ctx, tx, slices.Clone(next)); err != nil {
		return err
	}
	for _, t := range tables {
		amounts, summed := strings.Join(columns, ", "), sums()
		var further []string
		if t.peak != "" {
			amounts, summed, further = amounts+", peak", summed+", max(peak)", []string{greatest(t.name)}
		}
		_, err := tx.Exec(ctx, fmt.Sprintf(`WITH renamed AS (
				SELECT o.id AS former, n.id AS next FROM unnest($2::text[], $3::text[]) AS r (former, next)
				JOIN genv_usage.names o ON o.name = r.former JOIN genv_usage.names n ON n.name = r.next WHERE o.id <> n.id
			), moved AS (
				DELETE FROM genv_usage.%[1]s USING renamed WHERE fleet = $1 AND start >= $4 AND start < $5 AND %[2]s = former%[3]s
				RETURNING %[4]s, next, %[5]s
			) INSERT INTO genv_usage.%[1]s (fleet, %[4]s, %[2]s, %[5]s) SELECT $1::integer, %[4]s, next, %[6]s FROM moved GROUP BY %[4]s, next%[7]s`,
			t.name, t.user, t.of, t.keys, amounts, summed, more(t.name, further...)), s.fleet, former, next, since, until)
		if err != nil {
			return err
		}
	}
	return nil
}

// addNames gives ids to names that have none.
func addNames(ctx context.Context, tx pgx.Tx, names []string) error {
	slices.Sort(names)
	_, err := tx.Exec(ctx, "INSERT INTO genv_usage.names (name) SELECT unnest($1::text[]) EXCEPT SELECT name FROM genv_usage.names ON CONFLICT DO NOTHING", slices.Compact(names))
	return err
}

// removeNames removes the names that no row has any more, and what is left of them in the table.
// No row may get one meanwhile: Add has locked the table by its INSERT until it commits.
func (s *Store) removeNames(ctx context.Context) error {
	err := s.transaction(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "LOCK TABLE genv_usage.names IN SHARE ROW EXCLUSIVE MODE")
		if err == nil {
			_, err = tx.Exec(ctx, `DELETE FROM genv_usage.names WHERE id NOT IN (SELECT host FROM genv_usage.devices UNION SELECT model FROM genv_usage.devices
				UNION SELECT name FROM genv_usage.hour_sums UNION SELECT name FROM genv_usage.day_sums
				UNION SELECT "user" FROM genv_usage.hours UNION SELECT "user" FROM genv_usage.days)`)
		}
		return err
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if s.conn == nil {
		return errors.New("the connection was closed")
	}
	_, err = s.conn.Exec(ctx, "VACUUM genv_usage.names")
	return translated(err)
}

// usePseudonyms gives pseudonyms to the users of one day that has become old enough, if there is one.
func (s *Store) usePseudonyms(ctx context.Context, tx pgx.Tx, now time.Time) (changed bool, err error) {
	before := s.options.Pseudonyms.Before(now, s.options.In)
	if before == 0 {
		return false, nil
	}
	if _, err := s.lock(ctx, tx); err != nil {
		return false, err
	}
	var first *int64
	err = tx.QueryRow(ctx, `SELECT min(start) FROM (SELECT start FROM genv_usage.day_sums WHERE fleet = $1 AND kind = $2
		UNION ALL SELECT start FROM genv_usage.hour_sums WHERE fleet = $1 AND kind = $2) r
		WHERE start >= (SELECT nameless FROM genv_usage.fleets WHERE id = $1) AND start < $3`, s.fleet, int(usage.ByUser), before).Scan(&first)
	if err != nil || first == nil {
		return false, err
	}
	day := usage.DayOf(*first, s.options.In)
	next := usage.NextDay(day, s.options.In)
	found, err := tx.Query(ctx, "SELECT DISTINCT name FROM genv_usage.names WHERE id IN (SELECT name FROM genv_usage.day_sums WHERE fleet = $1 AND kind = $2 AND start >= $3 AND start < $4)",
		s.fleet, int(usage.ByUser), day, next)
	if err != nil {
		return false, err
	}
	users, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil {
		return false, err
	}
	names := make(map[string]string)
	for _, user := range users {
		if pseudonym := s.options.Pseudonyms.Of(user); pseudonym != user {
			names[user] = pseudonym
		}
	}
	if err := s.rename(ctx, tx, names, day, next); err != nil {
		return false, err
	}
	_, err = tx.Exec(ctx, "UPDATE genv_usage.fleets SET nameless = $2 WHERE id = $1", s.fleet, next)
	return err == nil, err
}
