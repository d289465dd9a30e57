package folder_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

func TestLock(t *testing.T) {
	d := open(t, t.TempDir())
	held, err := d.Lock("lock", 0)
	require.NoError(t, err)
	_, err = d.Lock("lock", 0)
	require.ErrorIs(t, err, folder.ErrLocked)
	require.ErrorContains(t, err, d.Join("lock"))

	begun := time.Now()
	_, err = d.Lock("lock", 50*time.Millisecond)
	require.ErrorIs(t, err, folder.ErrLocked)
	require.GreaterOrEqual(t, time.Since(begun), 50*time.Millisecond)

	time.AfterFunc(30*time.Millisecond, func() { _ = held.Close() })
	next, err := d.Lock("lock", time.Minute)
	require.NoError(t, err, "it waits until the lock is released")
	require.NoError(t, next.Close())
}

func TestLockFollowsNoLink(t *testing.T) {
	d := open(t, t.TempDir())
	victim := filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.Symlink(victim, d.Join("lock")))
	_, err := d.Lock("lock", 0)
	require.Error(t, err)
	require.NoFileExists(t, victim)
}

func TestLockShared(t *testing.T) {
	d := open(t, t.TempDir())
	first, err := d.LockShared("x.lock", 0)
	require.NoError(t, err)
	second, err := d.LockShared("x.lock", 0)
	require.NoError(t, err)
	_, err = d.Lock("x.lock", 0)
	require.ErrorIs(t, err, folder.ErrLocked)
	require.NoError(t, first.Close())
	require.NoError(t, second.Close())
	alone, err := d.Lock("x.lock", 0)
	require.NoError(t, err)
	_, err = d.LockShared("x.lock", 0)
	require.ErrorIs(t, err, folder.ErrLocked)
	require.NoError(t, alone.Close())
}
