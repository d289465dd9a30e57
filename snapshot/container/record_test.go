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
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

var recordStart = time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)

func alice() *snapshot.UID {
	uid := snapshot.UID(1000)
	return &uid
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	_, err := container.ReadRecord(run, id)
	require.ErrorIs(t, err, fs.ErrNotExist)
	for _, r := range []container.Record{
		{ID: id, EID: "4242", UID: alice(), Proof: container.ProofToken, Runtime: "docker", StartedAt: recordStart},
		{ID: id, EID: "4242", UID: alice(), Proof: container.ProofRootless, StartedAt: recordStart},
		{ID: id, Runtime: "docker", StartedAt: recordStart},
		{ID: id, EID: "4242", StartedAt: recordStart, PID: 77, Start: 4711},
	} {
		require.NoError(t, container.WriteRecord(run, r))
		got, err := container.ReadRecord(run, id)
		require.NoError(t, err)
		require.Equal(t, r, got)
	}
	for path, mode := range map[string]os.FileMode{container.RecordsDir(run): 0o755, filepath.Join(container.RecordsDir(run), id+".json"): 0o644} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), path)
	}
	ids, err := container.ListRecords(run)
	require.NoError(t, err)
	require.Equal(t, []string{id}, ids)
	require.NoError(t, container.RemoveRecord(run, id))
	require.NoError(t, container.RemoveRecord(run, id), "it is removed already")
	_, err = container.ReadRecord(run, id)
	require.ErrorIs(t, err, fs.ErrNotExist)
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
		r := container.Record{ID: id, EID: "4242", UID: alice(), Proof: container.ProofToken, Runtime: "docker", StartedAt: recordStart}
		change(&r)
		require.ErrorIs(t, container.WriteRecord(run, r), container.ErrInvalidRecord, name)
	}
	_, err := container.ReadRecord(run, "../"+id[3:])
	require.ErrorIs(t, err, container.ErrInvalidRecord)
	require.ErrorIs(t, container.RemoveRecord(run, "x"), container.ErrInvalidRecord)
}

// TestOnlyWhatRootWroteCounts: a folder, a file or a link that another user may have made
// proves nothing.
func TestOnlyWhatRootWroteCounts(t *testing.T) {
	run := t.TempDir()
	r := container.Record{ID: id, EID: "4242", UID: alice(), Proof: container.ProofToken, Runtime: "docker", StartedAt: recordStart}
	require.NoError(t, container.WriteRecord(run, r))
	file := filepath.Join(container.RecordsDir(run), id+".json")
	other := strings.Repeat("0", 64)
	require.NoError(t, os.Link(file, filepath.Join(t.TempDir(), "link")))
	_, err := container.ReadRecord(run, id)
	require.ErrorIs(t, err, folder.ErrUnsafe, "it has another name")

	require.NoError(t, container.WriteRecord(run, r), "a new file")
	require.NoError(t, os.Chmod(file, 0o666))
	_, err = container.ReadRecord(run, id)
	require.ErrorIs(t, err, folder.ErrUnsafe)
	require.NoError(t, os.Chmod(file, 0o644))
	require.NoError(t, os.Rename(file, filepath.Join(container.RecordsDir(run), other+".json")))
	_, err = container.ReadRecord(run, other)
	require.ErrorIs(t, err, container.ErrInvalidRecord, "of another container")
	require.NoError(t, os.Chmod(container.RecordsDir(run), 0o777))
	_, err = container.ReadRecord(run, other)
	require.ErrorIs(t, err, folder.ErrUnsafe)
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
