package sharding

import (
	"os"
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
