package report

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
)

// Runs that start at the same time, and each later run, have the same pseudonyms.
func TestPseudonyms(t *testing.T) {
	dir := t.TempDir()
	off, err := pseudonyms(dir, 0)
	require.NoError(t, err)
	require.Equal(t, store.Pseudonyms{}, off)
	require.NoFileExists(t, filepath.Join(dir, keyFile))

	made := make([]string, 8)
	var work errgroup.Group
	for i := range made {
		work.Go(func() error {
			p, err := pseudonyms(dir, time.Hour)
			if err == nil {
				made[i] = p.Of("alice")
			}
			return err
		})
	}
	require.NoError(t, work.Wait())
	for _, name := range made {
		require.True(t, usage.IsPseudonym(name), name)
		require.Equal(t, made[0], name)
	}
	info, err := os.Stat(filepath.Join(dir, keyFile))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	other, err := pseudonyms(t.TempDir(), time.Hour)
	require.NoError(t, err)
	require.NotEqual(t, made[0], other.Of("alice"))

	name, err := pseudonymOf("alice", dir)
	require.NoError(t, err)
	require.Equal(t, made[0], name)
	name, err = pseudonymOf("alice", t.TempDir())
	require.NoError(t, err)
	require.Empty(t, name)
}

// A key that can't be used keeps no names silently.
func TestKeysThatCanNotBeUsed(t *testing.T) {
	for says, spoil := range map[string]func(path string) error{
		"other users can read it":   func(path string) error { return os.Chmod(path, 0o644) }, //nolint:gosec // which is the point
		"has 5 bytes, not 32":       func(path string) error { return os.Truncate(path, 5) },
		"is not a regular file":     func(path string) error { return os.Rename(path, path+".was") },
		"no such file or directory": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		dir := filepath.Join(t.TempDir(), "state")
		require.NoError(t, os.Mkdir(dir, 0o700))
		_, err := ensureKey(dir)
		require.NoError(t, err)
		path := filepath.Join(dir, keyFile)
		require.NoError(t, spoil(path))
		if says == "is not a regular file" {
			require.NoError(t, os.Mkdir(path, 0o700))
		}
		_, err = pseudonyms(dir, time.Hour)
		require.Error(t, err, says)
		_, err = pseudonymOf("alice", dir)
		require.ErrorContains(t, err, says)
	}
}
