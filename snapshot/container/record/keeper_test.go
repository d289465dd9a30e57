package record_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/record"
)

func TestKeeper(t *testing.T) {
	run := t.TempDir()
	k := &record.Keeper{Run: run}
	require.False(t, k.Keeps("4242", 77), "there is no record")
	put := func(id string, eid snapshot.EnvID, pid snapshot.PID) {
		require.NoError(t, record.Write(run, record.Record{ID: id, EID: eid, PID: pid, Start: snapshot.StartTime(pid), StartedAt: start}))
	}
	other := strings.Repeat("0", 64)
	put(id, "4242", 77)
	require.True(t, k.Keeps("4242", 77))
	require.False(t, k.Keeps("4242", 78))
	require.False(t, k.Keeps("7", 77), "of another environment")
	put(other, "7", 78)
	require.True(t, k.Keeps("7", 78), "it was written in the same moment")
	require.NoError(t, os.Chtimes(record.Dir(run), time.Time{}, time.Now().Add(-time.Hour)))
	require.True(t, k.Keeps("7", 78))
	require.NoError(t, record.Remove(run, other))
	require.False(t, k.Keeps("7", 78))
	require.True(t, k.Keeps("4242", 77))
	require.NoError(t, os.Chmod(record.Dir(run), 0o777))
	require.NoError(t, os.Chtimes(record.Dir(run), time.Time{}, time.Now().Add(time.Hour)))
	require.False(t, k.Keeps("4242", 77), "any user could have written it")
}

func TestPrune(t *testing.T) {
	running := map[snapshot.PID]snapshot.StartTime{10: 100, 12: 120, 13: 0}
	for name, row := range map[string]struct {
		pid   snapshot.PID
		stays bool
	}{
		"it runs": {10, true}, "its PID is another process's": {12, false}, "it has ended": {13, false},
		"whether it runs is unknown": {14, true}, "no process is recorded": {0, true},
	} {
		t.Run(name, func(t *testing.T) {
			run := t.TempDir()
			r := record.Record{ID: id, StartedAt: start, PID: row.pid, Start: snapshot.StartTime(row.pid) * 10}
			if row.pid == 12 {
				r.Start++
			}
			require.NoError(t, record.Write(run, r))
			require.NoError(t, record.Prune(run, func(pid snapshot.PID) (snapshot.StartTime, bool) {
				s, known := running[pid]
				return s, known
			}))
			ids, err := record.List(run)
			require.NoError(t, err)
			require.Equal(t, row.stays, len(ids) == 1)
		})
	}
}
