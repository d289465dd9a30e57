package record_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/record"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

var (
	id    = strings.Repeat("4c01db0b339c0a1f", 4)
	start = time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
)

func alice() *snapshot.UID {
	uid := snapshot.UID(1000)
	return &uid
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	_, err := record.Read(run, id)
	require.ErrorIs(t, err, fs.ErrNotExist)
	for _, r := range []record.Record{
		{ID: id, EID: "4242", UID: alice(), Proof: record.Token, Runtime: "docker", StartedAt: start},
		{ID: id, EID: "4242", UID: alice(), Proof: record.Rootless, StartedAt: start},
		{ID: id, Runtime: "docker", StartedAt: start},
		{ID: id, EID: "4242", StartedAt: start, PID: 77, Start: 4711},
	} {
		require.NoError(t, record.Write(run, r))
		got, err := record.Read(run, id)
		require.NoError(t, err)
		require.Equal(t, r, got)
	}
	for path, mode := range map[string]os.FileMode{record.Dir(run): 0o755, filepath.Join(record.Dir(run), id+".json"): 0o644} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), path)
	}
	ids, err := record.List(run)
	require.NoError(t, err)
	require.Equal(t, []string{id}, ids)
	require.NoError(t, record.Remove(run, id))
	require.NoError(t, record.Remove(run, id), "it is removed already")
	_, err = record.Read(run, id)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestInvalidRecords(t *testing.T) {
	run := t.TempDir()
	for name, change := range map[string]func(*record.Record){
		"a short id":             func(r *record.Record) { r.ID = "4c01db0b339c" },
		"a path":                 func(r *record.Record) { r.ID = "../" + id[3:] },
		"an eid with a newline":  func(r *record.Record) { r.EID = "a\nb" },
		"a uid without a proof":  func(r *record.Record) { r.Proof = "" },
		"a proof without a uid":  func(r *record.Record) { r.UID = nil },
		"an unknown proof":       func(r *record.Record) { r.Proof = "label" },
		"a process without time": func(r *record.Record) { r.PID = 7 },
		"no time":                func(r *record.Record) { r.StartedAt = time.Time{} },
		"a runtime of two words": func(r *record.Record) { r.Runtime = "docker run" },
	} {
		r := record.Record{ID: id, EID: "4242", UID: alice(), Proof: record.Token, Runtime: "docker", StartedAt: start}
		change(&r)
		require.ErrorIs(t, record.Write(run, r), record.ErrInvalid, name)
	}
	_, err := record.Read(run, "../"+id[3:])
	require.ErrorIs(t, err, record.ErrInvalid)
	require.ErrorIs(t, record.Remove(run, "x"), record.ErrInvalid)
}

// TestOnlyWhatRootWroteCounts: a folder, a file or a link that another user may have made
// proves nothing.
func TestOnlyWhatRootWroteCounts(t *testing.T) {
	run := t.TempDir()
	r := record.Record{ID: id, EID: "4242", UID: alice(), Proof: record.Token, Runtime: "docker", StartedAt: start}
	require.NoError(t, record.Write(run, r))
	file := filepath.Join(record.Dir(run), id+".json")
	other := strings.Repeat("0", 64)
	require.NoError(t, os.Link(file, filepath.Join(t.TempDir(), "link")))
	_, err := record.Read(run, id)
	require.ErrorIs(t, err, folder.ErrUnsafe, "it has another name")

	require.NoError(t, record.Write(run, r), "a new file")
	require.NoError(t, os.Chmod(file, 0o666))
	_, err = record.Read(run, id)
	require.ErrorIs(t, err, folder.ErrUnsafe)
	require.NoError(t, os.Chmod(file, 0o644))
	require.NoError(t, os.Rename(file, filepath.Join(record.Dir(run), other+".json")))
	_, err = record.Read(run, other)
	require.ErrorIs(t, err, record.ErrInvalid, "of another container")
	require.NoError(t, os.Chmod(record.Dir(run), 0o777))
	_, err = record.Read(run, other)
	require.ErrorIs(t, err, folder.ErrUnsafe)
	require.NoError(t, os.RemoveAll(record.Dir(run)))
	require.NoError(t, os.Symlink(t.TempDir(), record.Dir(run)))
	require.Error(t, record.Write(run, r))
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"schema":1,"id":"` + id + `","eid":"4242","uid":1000,"proof":"token","runtime":"docker","started_at":"2025-03-01T12:00:00Z"}`))
	f.Add([]byte(`{"schema":1,"id":"` + id + `","eid":"","proof":"","runtime":"","started_at":"2025-03-01T12:00:00+01:00"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := record.Decode(data)
		if err != nil {
			require.ErrorIs(t, err, record.ErrInvalid)
			return
		}
		require.True(t, record.IsID(r.ID))
		require.Equal(t, r.UID == nil, r.Proof == "")
	})
}
