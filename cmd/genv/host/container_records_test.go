package host_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// TestRootsLookRemovesOldRecords: without root's service too, and only of what has ended.
func TestRootsLookRemovesOldRecords(t *testing.T) {
	t.Parallel()
	h := newOwnHost(t)
	run := filepath.Join(h.dir, "root/run")
	self, err := proc.FS{}.Stat(snapshot.PID(os.Getpid()))
	require.NoError(t, err)
	ended, lives := strings.Repeat("0", 64), strings.Repeat("1", 64)
	for id, start := range map[string]snapshot.StartTime{ended: self.Start + 1, lives: self.Start} {
		require.NoError(t, container.WriteRecord(run, container.Record{ID: id, PID: snapshot.PID(os.Getpid()), Start: start, StartedAt: time.Now()}))
	}
	remaining := func() []string {
		ids, err := container.ListRecords(run)
		require.NoError(t, err)
		return ids
	}
	h.does(4001, "gpus")
	require.Equal(t, []string{ended, lives}, remaining(), "a user's look removes nothing")
	text, _ := h.does(0, "gpus")
	require.Equal(t, []string{lives}, remaining(), text)
}
