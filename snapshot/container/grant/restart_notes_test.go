package grant_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
)

var (
	other = strings.Repeat("b", 64)
	begun = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
)

const restarter = snapshot.UID(4001)

func newNotes(t *testing.T) (n grant.RestartNotes, now *time.Time) {
	t.Helper()
	at := begun
	dir := filepath.Join(t.TempDir(), "root")
	require.NoError(t, os.Mkdir(dir, 0o755))
	n = grant.RestartNotes{Dir: dir, Now: func() time.Time { return at }}
	require.NoError(t, n.Write(grant.RestartNote{ID: id, Holder: grant.Holder{UID: restarter, EID: "7"}, Runtime: "docker"}, "secret"))
	return n, &at
}

func TestANoteIsGoodForItsContainerAlone(t *testing.T) {
	tests := []struct {
		name, id, runtime, token string
		after                    time.Duration
		proves                   bool
	}{
		{"the same container", id, "docker", "secret", time.Hour, true},
		{"again after months", id, "docker", "secret", grant.RestartLife, true},
		{"too late", id, "docker", "secret", grant.RestartLife + 1, false},
		{"another container with its token", other, "docker", "secret", 0, false},
		{"its id without its token", id, "docker", "", 0, false},
		{"its id with another token", id, "docker", "Secret", 0, false},
		{"another engine", id, "podman", "secret", 0, false},
		{"an unknown engine", id, "", "secret", 0, false},
		{"what is no id", "../" + id[3:], "docker", "secret", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n, now := newNotes(t)
			*now = begun.Add(tt.after)
			note, err := n.Find(tt.id, tt.runtime, tt.token)
			if !tt.proves {
				require.ErrorIs(t, err, grant.ErrUnknownStart)
				return
			}
			require.NoError(t, err)
			require.Equal(t, restarter, note.UID)
			require.EqualValues(t, "7", note.EID)
		})
	}
}

func TestOnlyRootsNotesCount(t *testing.T) {
	n, _ := newNotes(t)
	folder := filepath.Join(n.Dir, "container-users")
	path := filepath.Join(folder, id+".json")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(data), "secret", "the token isn't kept")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	require.NoError(t, os.WriteFile(filepath.Join(folder, other+".json"), data, 0o600))
	_, err = n.Find(other, "docker", "secret")
	require.ErrorIs(t, err, grant.ErrUnknownStart, "it is about another container")
	require.NoError(t, os.Chmod(folder, 0o777))
	_, err = n.Find(id, "docker", "secret")
	require.ErrorIs(t, err, grant.ErrUnknownStart, "any user could have written it")
	require.Error(t, n.Write(grant.RestartNote{ID: id, Holder: grant.Holder{UID: restarter}}, ""))
	require.Error(t, n.Write(grant.RestartNote{ID: "/etc", Holder: grant.Holder{UID: restarter}}, "secret"))
}

func TestNotesAreRemovedWithTheirContainers(t *testing.T) {
	require.NoError(t, grant.RestartNotes{Dir: t.TempDir(), Now: time.Now}.Prune(nil), "there are none")
	for name, row := range map[string]struct {
		after time.Duration
		gone  bool
		stays bool
	}{
		"it exists, or that is unknown": {time.Hour, false, true},
		"it was removed":                {time.Hour, true, false},
		"it is too old":                 {grant.RestartLife + 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			n, now := newNotes(t)
			require.NoError(t, n.Prune(func(note grant.RestartNote) bool { require.Equal(t, id, note.ID); return false }))
			*now = begun.Add(row.after)
			require.NoError(t, n.Prune(func(grant.RestartNote) bool { return row.gone }))
			*now = begun
			_, err := n.Find(id, "docker", "secret")
			require.Equal(t, row.stays, err == nil)
		})
	}
}

// FuzzFind: a note proves a user only with the hash of the token, whatever it contains.
func FuzzFind(f *testing.F) {
	f.Add([]byte(`{"id":"` + id + `","uid":4001,"runtime":"docker","token":"","started":"2030-01-02T03:04:05Z"}`))
	f.Add([]byte("null"))
	n := grant.RestartNotes{Dir: filepath.Join(f.TempDir(), "root"), Now: func() time.Time { return begun }}
	dir := filepath.Join(n.Dir, "container-users")
	require.NoError(f, os.MkdirAll(dir, 0o755))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(dir, id+".json")
		_ = os.Remove(path) // ext4 writes a file at once that is truncated
		require.NoError(t, os.WriteFile(path, data, 0o600))
		note, err := n.Find(id, "docker", "secret")
		if err != nil {
			require.ErrorIs(t, err, grant.ErrUnknownStart)
			return
		}
		sum := sha256.Sum256([]byte("secret"))
		require.Equal(t, hex.EncodeToString(sum[:]), note.Token)
	})
}
