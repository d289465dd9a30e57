package proc_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

func TestBootID(t *testing.T) {
	fs := mount(t)
	dir := filepath.Join(fs.Root, "sys/kernel/random")
	_, err := fs.BootID()
	require.ErrorIs(t, err, os.ErrNotExist)

	require.NoError(t, os.MkdirAll(dir, 0o755))
	write := func(content string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "boot_id"), []byte(content), 0o644))
	}
	write("6f1f5d0b-8f7c-4d83-9d0e-3a4f1c0c2b11\n")
	id, err := fs.BootID()
	require.NoError(t, err)
	require.Equal(t, "6f1f5d0b-8f7c-4d83-9d0e-3a4f1c0c2b11", id)
	for _, bad := range []string{"", "rubbish\n", "6f1f5d0b-8f7c-4d83-9d0e-3a4f1c0c2bzz", "6f1f5d0b08f7c04d8309d0e03a4f1c0c2b11", "6f1f5d0b-8f7c-4d83-9d0e-3a4f1c0c2b11 more"} {
		write(bad)
		_, err = fs.BootID()
		require.Error(t, err, bad)
	}

	id, err = proc.FS{}.BootID()
	require.NoError(t, err)
	require.NotEmpty(t, id)
}

func TestAncestors(t *testing.T) {
	fs := mount(t)
	for _, row := range []struct{ pid, parent int }{{10, 1}, {11, 10}, {12, 11}, {20, 0}, {30, 29}, {40, 41}, {41, 40}} {
		add(t, fs, snapshot.PID(row.pid), map[string]string{"stat": statLine(row.pid, "sh", "S", row.parent, 0, 1, 5)})
	}
	for _, row := range []struct {
		what string
		pid  snapshot.PID
		want []snapshot.PID
	}{
		{"up to PID 1", 12, []snapshot.PID{11, 10, 1}},
		{"PID 1 has none", 1, nil},
		{"the first of a namespace", 20, nil},
	} {
		got, err := fs.Ancestors(row.pid)
		require.NoError(t, err, row.what)
		require.Equal(t, row.want, got, row.what)
	}
	_, err := fs.Ancestors(30) // its parent has ended, and it never gets another
	require.ErrorIs(t, err, proc.ErrGone)
	_, err = fs.Ancestors(40) // a ring, which no kernel makes
	require.ErrorIs(t, err, proc.ErrUnreadable)
}

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
