package enforcement

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/controller/statedir"
)

// A loop doesn't act under an id that no later start would have. A single cycle claims nothing.
func TestAnIDThatCantBeRead(t *testing.T) {
	dir := t.TempDir()
	store, err := statedir.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	k := &keeper{store: store}
	first, err := k.identity(t.Context(), time.Now(), true)
	require.NoError(t, err)
	again, err := k.identity(t.Context(), time.Now(), true)
	require.NoError(t, err)
	require.Equal(t, first.ID, again.ID)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "controller-id"), []byte("x"), 0o600))
	_, err = k.identity(t.Context(), time.Now(), true)
	require.ErrorContains(t, err, "controller-id is damaged")
	single, err := k.identity(t.Context(), time.Now(), false)
	require.NoError(t, err)
	require.NotEmpty(t, single.ID)
}

func TestClaim(t *testing.T) {
	long := identity{ID: strings.Repeat("I", 26), Hostname: strings.Repeat("h", 64), Person: strings.Repeat("ä", 200), PID: 4194304}
	setup := &Setup{}
	claim, err := (&keeper{}).claim(setup, &long)
	require.NoError(t, err)
	require.Nil(t, claim, "a single cycle")

	setup.Interval = time.Second
	claim, err = (&keeper{}).claim(setup, &long)
	require.NoError(t, err)
	require.NoError(t, claim.Check(), "hosts accept it, whatever the names")

	setup.TakeOver = true
	_, err = (&keeper{}).claim(setup, &long)
	require.ErrorContains(t, err, "needs a state folder", "hosts could not know it again")
	store, err := statedir.Open(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	claim, err = (&keeper{store: store}).claim(setup, &long)
	require.NoError(t, err)
	require.True(t, claim.TakeOver)
	require.NoError(t, claim.Check())
}
