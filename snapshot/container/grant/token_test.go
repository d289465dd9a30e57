package grant_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/container/oci"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
)

func TestATokenIsRedeemedOnce(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	tokens := &grant.Tokens{Now: func() time.Time { return now }}
	alice, bob := grant.ProvedUser{UID: 1001, EID: "10"}, grant.ProvedUser{UID: 1002}
	issue := func(h grant.ProvedUser) string {
		text := proctest.Try(tokens.Issue(h)).OK(t)
		require.LessOrEqual(t, len(text), grant.MaxToken)
		return text
	}
	hers, his, late := issue(alice), issue(bob), issue(bob)
	require.NotEqual(t, his, late)
	for _, forged := range []string{"", "x", hers + "x", hers[1:]} {
		_, ok := tokens.Redeem(forged)
		require.False(t, ok, forged)
	}
	got, ok := tokens.Redeem(hers)
	require.True(t, ok)
	require.Equal(t, alice, got)
	_, ok = tokens.Redeem(hers)
	require.False(t, ok, "a replay")
	now = now.Add(grant.TokenLife - time.Second)
	got, ok = tokens.Redeem(his)
	require.True(t, ok)
	require.Equal(t, bob, got)
	now = now.Add(time.Second)
	_, ok = tokens.Redeem(late)
	require.False(t, ok, "it is too old")
	require.ErrorIs(t, proctest.Try(tokens.Issue(grant.ProvedUser{UID: 1001, EID: "a\nb"})).Err, state.ErrRequest)
}

func TestTokensAreBounded(t *testing.T) {
	now := time.Now()
	tokens := &grant.Tokens{Now: func() time.Time { return now }}
	var texts []string
	for range 100 {
		text := proctest.Try(tokens.Issue(grant.ProvedUser{UID: 1})).OK(t)
		texts = append(texts, text)
	}
	_, ok := tokens.Redeem(texts[0])
	require.False(t, ok, "a user's oldest token gives way")
	_, ok = tokens.Redeem(texts[99])
	require.True(t, ok)
	var err error
	for uid := snapshot.UID(2); uid < 5000 && err == nil; uid++ {
		_, err = tokens.Issue(grant.ProvedUser{UID: uid})
	}
	require.ErrorIs(t, err, state.ErrRequest)
	proctest.Try(tokens.Issue(grant.ProvedUser{UID: 1})).OK(t, "who has one can have others")
	now = now.Add(grant.TokenLife)
	proctest.Try(tokens.Issue(grant.ProvedUser{UID: 9999})).OK(t, "the others are too old")
}

func TestOneOfManyRedeems(t *testing.T) {
	tokens := &grant.Tokens{Now: time.Now}
	text := proctest.Try(tokens.Issue(grant.ProvedUser{UID: 1})).OK(t)
	var redeemed atomic.Int32
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, ok := tokens.Redeem(text); ok {
				redeemed.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, redeemed.Load())
}

// FuzzAsked: what a container's variables and annotations ask for is a request that root's
// service accepts too, or an error, which only a container that asks for GPUs has.
func FuzzAsked(f *testing.F) {
	f.Add("all", "2", "4g", "web", "cdi.k8s.io/x", "nvidia.com/gpu=0")
	f.Add("0,GPU-1", "all", "-1", "a\nb", "other", "nvidia.com/gpu=all")
	f.Add("void", "65536", "0", "", "cdi.k8s.io/", ",nvidia.com/gpu=,,")
	f.Fuzz(func(t *testing.T, visible, count, memory, name, key, value string) {
		data, err := json.Marshal(map[string]any{
			"process": map[string]any{"env": []string{
				"NVIDIA_VISIBLE_DEVICES=" + visible, grant.GPUs + "=" + count, grant.GPUMemory + "=" + memory, grant.Name + "=" + name,
			}},
			"annotations": map[string]string{key: value},
		})
		require.NoError(t, err)
		c := proctest.Try(oci.Parse(data)).OK(t)
		for _, nvidia := range []bool{false, true} {
			r, err := grant.Asked(c, nvidia)
			if err != nil {
				require.ErrorIs(t, err, grant.ErrRequest)
				continue
			}
			require.NoError(t, r.Check())
			require.NotContains(t, r.Names, "")
			require.NotContains(t, r.Names, "all")
			if count == "2" {
				require.Equal(t, 2, r.Count)
			}
		}
	})
}

// FuzzRedeem: a text that was not issued is of no user, and costs no user a token.
func FuzzRedeem(f *testing.F) {
	for _, seed := range []string{"", "x", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "\x00\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, forged string) {
		tokens := grant.Tokens{Now: time.Now}
		alice := grant.ProvedUser{UID: 1001, EID: "10"}
		issued := proctest.Try(tokens.Issue(alice)).OK(t)
		for _, text := range []string{forged, forged + issued, issued + forged} {
			if text == issued {
				continue
			}
			h, ok := tokens.Redeem(text)
			require.False(t, ok)
			require.Zero(t, h)
		}
		h, ok := tokens.Redeem(issued)
		require.True(t, ok)
		require.Equal(t, alice, h)
	})
}

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
	require.NoError(t, n.Write(grant.RestartNote{ID: id, ProvedUser: grant.ProvedUser{UID: restarter, EID: "7"}, Runtime: "docker"}, "secret"))
	return n, &at
}

func TestANoteIsGoodForItsContainerAlone(t *testing.T) {
	for _, tt := range []struct {
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
	} {
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
	data := proctest.ReadFile(t, path)
	require.NotContains(t, string(data), "secret", "the token isn't kept")
	info := proctest.Try(os.Stat(path)).OK(t)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	require.NoError(t, os.WriteFile(filepath.Join(folder, other+".json"), data, 0o600))
	require.ErrorIs(t, proctest.Try(n.Find(other, "docker", "secret")).Err, grant.ErrUnknownStart, "it is about another container")
	require.NoError(t, os.Chmod(folder, 0o777))
	require.ErrorIs(t, proctest.Try(n.Find(id, "docker", "secret")).Err, grant.ErrUnknownStart, "any user could have written it")
	require.Error(t, n.Write(grant.RestartNote{ID: id, ProvedUser: grant.ProvedUser{UID: restarter}}, ""))
	require.Error(t, n.Write(grant.RestartNote{ID: "/etc", ProvedUser: grant.ProvedUser{UID: restarter}}, "secret"))
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
