package store

import (
	"context"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// HoursName is for the GPU hours of caps, apart from usage, which may be full or off.
const HoursName = "hours.db"

// keepPeriods covers the present and the previous month.
const keepPeriods = 63 * 24 * time.Hour

// hoursSchema is added on demand. The version stays, so that earlier versions can use the database.
const hoursSchema = "CREATE TABLE cap_hours ({fleet integer,}cap text, period bigint, person text, seconds bigint NOT " +
	"NULL, PRIMARY KEY ({fleet,}cap, period, person))"

// Hours returns the GPU-hour counts of caps by ID, each of its last period, and until when they count; 0 if unknown.
func (s *Store) Hours(ctx context.Context) (all map[string]enforce.Hours, until int64, err error) {
	all = make(map[string]enforce.Hours)
	err = s.transaction(ctx, func(t *tx) {
		var id, user string
		var period, seconds int64
		if until = t.Until; !t.has("cap_hours") {
			return
		}
		t.rows([]any{&id, &period, &user, &seconds}, func() {
			if begun := time.Unix(period, 0); begun.After(all[id].Period) {
				all[id] = enforce.Hours{Period: begun, Seconds: make(map[snapshot.Username]float64)}
			}
			all[id].Seconds[snapshot.Username(user)] = float64(seconds)
		}, "SELECT cap, period, person, seconds FROM cap_hours WHERE {fleet} ORDER BY period")
	})
	return all, until, err
}

// SaveHours stores counts up to a time. Seconds never decrease, so repeated or late writes do nothing.
func (s *Store) SaveHours(ctx context.Context, all map[string]enforce.Hours, until time.Time) error {
	var rows [][]any
	for id, hours := range all {
		for user, seconds := range hours.Seconds {
			if name := valid(string(user)); name == string(user) { // like names of accounts
				rows = append(rows, []any{id, hours.Period.Unix(), name, int64(seconds)})
			}
		}
	}
	return s.transaction(ctx, func(t *tx) {
		if !t.has("cap_hours") {
			t.run(hoursSchema)
		}
		for chunk := range slices.Chunk(rows, maxRows) {
			list := valuesList{prefix: "{id,}"}
			for _, row := range chunk {
				list.add(row...)
			}
			t.run("INSERT INTO cap_hours ({fleet,}cap, period, person, seconds) "+list.text.String()+" ON CONFLICT "+
				"({fleet,}cap, period, person) DO UPDATE SET seconds = excluded.seconds WHERE cap_hours.seconds < "+
				"excluded.seconds", list.args...)
		}
		t.run("DELETE FROM cap_hours WHERE {fleet} AND period < $1", until.Add(-keepPeriods).Unix())
		if !t.shared { // a server's mark belongs to usage, which the same controller stores
			t.Until = max(t.Until, until.Unix())
		}
	})
}
