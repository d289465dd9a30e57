package enforcement

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/audit"
)

// TestEndedBefore: what can't be read, or is too much, isn't taken for nothing.
func TestEndedBefore(t *testing.T) {
	start := time.Date(2026, 11, 29, 9, 0, 0, 0, time.UTC)
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	read := func(want int, complete bool) {
		t.Helper()
		list, all := endedBefore(path, start)()
		require.Len(t, list, want)
		require.Equal(t, complete, all)
	}
	add := func(n int) {
		var records []audit.Record
		for i := range n {
			records = append(records, audit.Record{Time: start.Add(-time.Hour), Kind: audit.KindOrder, Order: fmt.Sprint("r/", n, "/", i), PID: 5})
		}
		require.NoError(t, (&audit.Log{Path: path}).Append(records...))
	}
	read(0, true)
	add(2)
	read(2, true)
	add(maxEnded)
	read(maxEnded, false)
	require.NoError(t, os.WriteFile(path, []byte("not a record\n"), 0o600))
	read(0, false)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink("elsewhere", path))
	read(0, false)
}
