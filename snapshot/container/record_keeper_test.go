package container_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
)

func TestKeeper(t *testing.T) {
	run := t.TempDir()
	k := &container.Keeper{Run: run}
	require.False(t, k.Keeps("4242", 77, 77), "there is no record")
	put := func(id string, eid snapshot.EnvID, pid snapshot.PID) {
		require.NoError(t, container.WriteRecord(run, container.Record{ID: id, EID: eid, PID: pid, Start: snapshot.StartTime(pid), StartedAt: recordStart}))
	}
	other := strings.Repeat("0", 64)
	put(id, "4242", 77)
	require.True(t, k.Keeps("4242", 77, 77))
	require.False(t, k.Keeps("4242", 78, 78))
	require.False(t, k.Keeps("7", 77, 77), "of another environment")
	require.False(t, k.Keeps("4242", 77, 99), "another process has its PID")
	require.True(t, k.Keeps("4242", 77, 0), "which process has its PID is unknown")
	put(other, "7", 78)
	require.True(t, k.Keeps("7", 78, 78), "it was written in the same moment")
	require.NoError(t, os.Chtimes(container.RecordsDir(run), time.Time{}, time.Now().Add(-time.Hour)))
	require.True(t, k.Keeps("7", 78, 78))
	require.NoError(t, container.RemoveRecord(run, other))
	require.False(t, k.Keeps("7", 78, 78))
	require.True(t, k.Keeps("4242", 77, 77))
	require.NoError(t, os.Chmod(container.RecordsDir(run), 0o777))
	require.NoError(t, os.Chtimes(container.RecordsDir(run), time.Time{}, time.Now().Add(time.Hour)))
	require.False(t, k.Keeps("4242", 77, 77), "any user could have written it")
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
			r := container.Record{ID: id, StartedAt: recordStart, PID: row.pid, Start: snapshot.StartTime(row.pid) * 10}
			if row.pid == 12 {
				r.Start++
			}
			require.NoError(t, container.WriteRecord(run, r))
			require.NoError(t, container.PruneRecords(run, func(pid snapshot.PID) (snapshot.StartTime, bool) {
				s, known := running[pid]
				return s, known
			}))
			ids, err := container.ListRecords(run)
			require.NoError(t, err)
			require.Equal(t, row.stays, len(ids) == 1)
		})
	}
}

// TestARestartKeepsItsRecord: one container starts again at each time when the record of its
// last start may be removed.
func TestARestartKeepsItsRecord(t *testing.T) {
	run := t.TempDir()
	for i := range 30 {
		ended := container.Record{ID: id, EID: "4242", PID: 10, Start: snapshot.StartTime(i + 1), StartedAt: recordStart}
		again := ended
		again.PID = 11
		require.NoError(t, container.WriteRecord(run, ended))
		written := make(chan error)
		err := container.PruneRecords(run, func(pid snapshot.PID) (snapshot.StartTime, bool) {
			if pid == again.PID {
				return again.Start, true
			}
			go func() { written <- container.WriteRecord(run, again) }()
			return 0, true
		})
		require.NoError(t, <-written)
		require.NoError(t, err)
		got, err := container.ReadRecord(run, id)
		require.NoError(t, err)
		require.Equal(t, again, got)
	}
}

func TestRemoveSame(t *testing.T) {
	run := t.TempDir()
	r := container.Record{ID: id, EID: "4242", PID: 10, Start: 100, StartedAt: recordStart}
	require.NoError(t, container.RemoveSameRecord(run, r), "there is none")
	for name, row := range map[string]struct {
		pid   snapshot.PID
		start snapshot.StartTime
		stays bool
	}{
		"the same": {10, 100, false}, "started again": {11, 110, true}, "started again with its PID": {10, 110, true},
	} {
		now := r
		now.PID, now.Start = row.pid, row.start
		require.NoError(t, container.WriteRecord(run, now))
		require.NoError(t, container.RemoveSameRecord(run, r))
		_, err := container.ReadRecord(run, id)
		require.Equal(t, row.stays, err == nil, name)
	}
}
