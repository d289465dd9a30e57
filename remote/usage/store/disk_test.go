package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/testfleet/postgresserver"
	"github.com/seed-3119e985/genv/remote/usage"
)

// The server's disk is full: an entry is refused as a whole, and says so; with room again it is
// added, and counts once.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	postgresserver.Require(t)
	disk, err := os.MkdirTemp("", "genv-disk-") // postgres can't enter t.TempDir
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(disk)) })
	if err := unix.Mount("none", disk, "tmpfs", 0, "size=256m"); err != nil {
		t.Skipf("only root can mount a small file system: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(disk, unix.MNT_DETACH)) }) // the server ends before
	server := postgresserver.Start(t, disk)
	s := open(t, server, options())
	var kept []*usage.Entry
	add := func() error {
		e := entryOf(firstHour+int64(len(kept))*3600, uint64(len(kept)))
		e.ID = fmt.Sprint(len(kept))
		err := s.Add(t.Context(), e)
		if err == nil {
			kept = append(kept, e)
		}
		return err
	}
	require.NoError(t, add())
	ballast := filepath.Join(disk, "ballast")
	_ = os.WriteFile(ballast, make([]byte, 256<<20), 0o600) // as much as fits
	for err = add(); err == nil; err = add() {
		require.Less(t, len(kept), 1000)
	}
	require.ErrorIs(t, err, usage.ErrFull)
	require.Equal(t, attached(kept...), total(t, s).Total.Attached, "nothing of it is there")
	require.NoError(t, os.Remove(ballast))
	require.Eventually(t, func() bool { return add() == nil }, time.Minute, 100*time.Millisecond)
	require.Equal(t, attached(kept...), total(t, s).Total.Attached)
}
