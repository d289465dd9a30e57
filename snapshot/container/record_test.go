package container_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

var recordStart = time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)

// proved is the record of a container that was started for uid 1000.
func proved() container.Record {
	return container.Record{ID: id, EID: "4242", UID: new(snapshot.UID(1000)), Proof: container.ProofToken, Runtime: "docker", StartedAt: recordStart}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	require.ErrorIs(t, proctest.Try(container.ReadRecord(run, id)).Err, fs.ErrNotExist)
	for _, r := range []container.Record{
		proved(),
		{ID: id, Runtime: "docker", StartedAt: recordStart},
		{ID: id, EID: "4242", StartedAt: recordStart, PID: 77, Start: 4711},
	} {
		require.NoError(t, container.WriteRecord(run, r))
		got := proctest.Try(container.ReadRecord(run, id)).OK(t)
		r.Schema = 1
		require.Equal(t, r, got)
	}
	for path, mode := range map[string]os.FileMode{container.RecordsDir(run): 0o755, filepath.Join(container.RecordsDir(run), id+".json"): 0o644} {
		require.Equal(t, mode, proctest.Try(os.Stat(path)).OK(t).Mode().Perm(), path)
	}
	ids := proctest.Try(container.ListRecords(run)).OK(t)
	require.Equal(t, []string{id}, ids)
	require.NoError(t, container.RemoveRecord(run, id, nil))
	require.NoError(t, container.RemoveRecord(run, id, nil), "it is removed already")
	require.ErrorIs(t, proctest.Try(container.ReadRecord(run, id)).Err, fs.ErrNotExist)
}

func TestInvalidRecords(t *testing.T) {
	run := t.TempDir()
	for name, change := range map[string]func(*container.Record){
		"a short id":             func(r *container.Record) { r.ID = "4c01db0b339c" },
		"a path":                 func(r *container.Record) { r.ID = "../" + id[3:] },
		"an eid with a newline":  func(r *container.Record) { r.EID = "a\nb" },
		"a uid without a proof":  func(r *container.Record) { r.Proof = "" },
		"a proof without a uid":  func(r *container.Record) { r.UID = nil },
		"an unknown proof":       func(r *container.Record) { r.Proof = "label" },
		"a process without time": func(r *container.Record) { r.PID = 7 },
		"no time":                func(r *container.Record) { r.StartedAt = time.Time{} },
		"a runtime of two words": func(r *container.Record) { r.Runtime = "docker run" },
	} {
		r := proved()
		change(&r)
		require.ErrorIs(t, container.WriteRecord(run, r), container.ErrInvalidRecord, name)
	}
	require.ErrorIs(t, proctest.Try(container.ReadRecord(run, "../"+id[3:])).Err, container.ErrInvalidRecord)
	require.ErrorIs(t, container.RemoveRecord(run, "x", nil), container.ErrInvalidRecord)
}

// TestOnlyWhatRootWroteCounts: a folder, a file or a link that another user may have made proves nothing.
func TestOnlyWhatRootWroteCounts(t *testing.T) {
	run, r := t.TempDir(), proved()
	require.NoError(t, container.WriteRecord(run, r))
	file := filepath.Join(container.RecordsDir(run), id+".json")
	other := strings.Repeat("0", 64)
	require.NoError(t, os.Link(file, filepath.Join(t.TempDir(), "link")))
	_, err := container.ReadRecord(run, id)
	require.ErrorIs(t, err, folder.ErrUnsafe, "it has another name")

	require.NoError(t, container.WriteRecord(run, r), "a new file")
	require.NoError(t, os.Chmod(file, 0o666))
	require.ErrorIs(t, proctest.Try(container.ReadRecord(run, id)).Err, folder.ErrUnsafe)
	require.NoError(t, os.Chmod(file, 0o644))
	require.NoError(t, os.Rename(file, filepath.Join(container.RecordsDir(run), other+".json")))
	require.ErrorIs(t, proctest.Try(container.ReadRecord(run, other)).Err, container.ErrInvalidRecord, "of another container")
	require.NoError(t, os.Chmod(container.RecordsDir(run), 0o777))
	require.ErrorIs(t, proctest.Try(container.ReadRecord(run, other)).Err, folder.ErrUnsafe)
	require.NoError(t, os.RemoveAll(container.RecordsDir(run)))
	require.NoError(t, os.Symlink(t.TempDir(), container.RecordsDir(run)))
	require.Error(t, container.WriteRecord(run, r))
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"schema":1,"id":"` + id + `","eid":"4242","uid":1000,"proof":"token","runtime":"docker","started_at":"2025-03-01T12:00:00Z"}`))
	f.Add([]byte(`{"schema":1,"id":"` + id + `","eid":"","proof":"","runtime":"","started_at":"2025-03-01T12:00:00+01:00"}`))
	run := f.TempDir()
	path := filepath.Join(container.RecordsDir(run), id+".json")
	require.NoError(f, os.MkdirAll(filepath.Dir(path), 0o755))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = os.Remove(path) // ext4 writes a file at once that is truncated
		require.NoError(t, os.WriteFile(path, data, 0o600))
		r, err := container.ReadRecord(run, id)
		if len(data) > 16<<10 {
			require.ErrorIs(t, err, folder.ErrUnsafe)
			return
		}
		if err != nil {
			require.ErrorIs(t, err, container.ErrInvalidRecord)
			return
		}
		require.True(t, container.IsID(r.ID))
		require.Equal(t, r.UID == nil, r.Proof == "")
	})
}

func TestKeeper(t *testing.T) {
	run := t.TempDir()
	k := &container.RunningInits{Run: run}
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
	require.NoError(t, container.RemoveRecord(run, other, nil))
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
			require.Equal(t, row.stays, len(proctest.Try(container.ListRecords(run)).OK(t)) == 1)
		})
	}
}

// TestARestartKeepsItsRecord: one container starts again at each time when the record of its last start may be removed.
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
		got := proctest.Try(container.ReadRecord(run, id)).OK(t)
		again.Schema = 1
		require.Equal(t, again, got)
	}
}

func TestRemoveSame(t *testing.T) {
	run := t.TempDir()
	r := container.Record{ID: id, EID: "4242", PID: 10, Start: 100, StartedAt: recordStart}
	require.NoError(t, container.RemoveRecord(run, r.ID, &r), "there is none")
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
		require.NoError(t, container.RemoveRecord(run, r.ID, &r))
		_, err := container.ReadRecord(run, id)
		require.Equal(t, row.stays, err == nil, name)
	}
}
