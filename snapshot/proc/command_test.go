package proc_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

func TestCommand(t *testing.T) {
	fs := mount(t)
	for _, row := range []struct {
		what      string
		pid       int
		comm, exe string
		flags     int
		want      string
	}{
		{"a short name", 10, "python3", "/usr/bin/python3.11", 0, "python3"},
		{"a cut name", 11, "nvidia-cuda-mps", "/usr/bin/nvidia-cuda-mps-server", 0, "nvidia-cuda-mps-server"},
		{"a cut name whose program was replaced", 12, "nvidia-cuda-mps", "/usr/bin/nvidia-cuda-mps-server (deleted)", 0, "nvidia-cuda-mps-server"},
		{"a title of its own", 13, "worker-00000001", "/usr/bin/python3.11", 0, "worker-00000001"},
		{"no program to be seen", 14, "nvidia-cuda-mps", "", 0, "nvidia-cuda-mps"},
	} {
		add(t, fs, snapshot.PID(row.pid), map[string]string{"stat": statLine(row.pid, row.comm, "S", 1, row.flags, 1, 5)})
		if row.exe != "" {
			require.NoError(t, os.Symlink(row.exe, filepath.Join(fs.Root, strconv.Itoa(row.pid), "exe")))
		}
		p, err := fs.Open(snapshot.PID(row.pid))
		require.NoError(t, err, row.what)
		stat, err := p.Stat()
		require.NoError(t, err, row.what)
		require.Equal(t, row.want, p.Command(stat), row.what)
		require.NoError(t, p.Close())
	}
}
