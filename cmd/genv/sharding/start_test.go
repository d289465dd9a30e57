package sharding

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/remote/controller/statedir"
)

// starting starts a controller with a state folder. It ends, since genv isn't where the test is.
func starting(t *testing.T, dir string) error {
	t.Helper()
	parts := &Parts{Enforcement: enforcement.Config{StateDir: dir, Interval: time.Second}}
	err := Start(t.Context(), &command.Program{Getenv: os.Getenv}, Config{Count: 2}, parts, nil)
	require.Error(t, err)
	return err
}

// A second controller would have the same id: it is refused before it asks etcd.
func TestAStateFolderThatIsInUse(t *testing.T) {
	dir := t.TempDir()
	require.NotErrorIs(t, starting(t, dir), statedir.ErrInUse)
	store, err := statedir.Open(dir)
	require.NoError(t, err, "it is left unlocked")
	err = starting(t, dir)
	require.ErrorIs(t, err, statedir.ErrInUse)
	require.ErrorContains(t, err, "--state-dir: another controller is using this folder: "+dir)
	require.NoError(t, store.Close())
	require.NotErrorIs(t, starting(t, dir), statedir.ErrInUse)
}

// etcd remembers a controller by its folder and host, as without --shards: otherwise one that was killed while it
// ran without would be lost for days.
func TestTheRegistrationIsThatOfTheFolder(t *testing.T) {
	store, err := statedir.Open(t.TempDir())
	require.NoError(t, err)
	defer store.Close()
	folder, err := store.ID()
	require.NoError(t, err)
	registered := registration(store, "jump-1-abc", "jump-1")
	require.Equal(t, []string{folder, "jump-1"}, []string{registered.ID, registered.Host})
	require.NoError(t, store.Close())
	require.Equal(t, "jump-1-abc", registration(store, "jump-1-abc", "jump-1").ID)
}

// A controller that was killed left the folders of its processes. The next one removes those, and
// nothing that another controller, another user or a link has.
func TestLeftoversAreRemoved(t *testing.T) {
	temp, dir := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	machine, err := os.Hostname()
	require.NoError(t, err)
	own, other := tempPrefix(ID(machine, dir)), tempPrefix(ID(machine, dir+"2"))
	require.NoError(t, os.MkdirAll(filepath.Join(temp, own+"1"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(temp, own+"1", "notify"), nil, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(temp, other+"1"), 0o700))
	require.NoError(t, os.Symlink(temp, filepath.Join(temp, own+"2")))
	require.NoError(t, os.WriteFile(filepath.Join(temp, own+"3"), nil, 0o600))
	want := []string{other + "1", own + "2", own + "3"}
	if os.Geteuid() == 0 {
		require.NoError(t, os.Mkdir(filepath.Join(temp, own+"4"), 0o700))
		require.NoError(t, os.Chown(filepath.Join(temp, own+"4"), 65534, 65534))
		want = append(want, own+"4")
	}
	left := func() (names []string) {
		entries, err := os.ReadDir(temp)
		require.NoError(t, err)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
	store, err := statedir.Open(dir)
	require.NoError(t, err)
	require.ErrorIs(t, starting(t, dir), statedir.ErrInUse)
	require.Contains(t, left(), own+"1", "the controller lives")
	require.NoError(t, store.Close())
	require.NotErrorIs(t, starting(t, dir), statedir.ErrInUse)
	require.ElementsMatch(t, want, left())
}
