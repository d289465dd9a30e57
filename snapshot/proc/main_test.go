package proc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// statLine is a line of /proc/PID/stat as Linux 6 writes it (constructed).
func statLine(pid int, name, state string, ppid, flags, threads, start int) string {
	return fmt.Sprintf("%d (%s) %s %d %d %d 0 -1 %d 1 0 0 0 5 6 0 0 20 0 %d 0 %d 1000 100 18446744073709551615 "+
		"1 1 0 0 0 0 0 16781312 17642 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 140722 140793 0\n",
		pid, name, state, ppid, pid, pid, flags, threads, start)
}

// statusText is the part of /proc/PID/status that matters (constructed).
func statusText(name string, uid int) string {
	return fmt.Sprintf("Name:\t%s\nUmask:\t0022\nState:\tS (sleeping)\nUid:\t%d\t0\t0\t0\nGid:\t0\t0\t0\t0\n", name, uid)
}

// mount builds a /proc in a folder: PID 1 and whatever is added to it.
func mount(t *testing.T) proc.FS {
	t.Helper()
	fs := proc.FS{Root: t.TempDir()}
	add(t, fs, 1, map[string]string{"stat": statLine(1, "init", "S", 0, 0, 1, 2)})
	return fs
}

// add adds a process with the given files.
func add(t *testing.T, fs proc.FS, pid snapshot.PID, files map[string]string) {
	t.Helper()
	dir := filepath.Join(fs.Root, strconv.Itoa(int(pid)))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, content := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
}
