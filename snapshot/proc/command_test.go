package proc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
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

func TestCommandLine(t *testing.T) {
	fs := mount(t)
	for i, row := range []struct{ what, cmdline, want string }{
		{"arguments", "python\x00train.py\x00--lr=0.1\x00", "python train.py --lr=0.1"},
		{"an empty argument", "a\x00\x00b\x00", "a  b"},
		{"a title, and NULs", "ray::train epoch 3\x00\x00\x00\x00\x00", "ray::train epoch 3"},
		{"none", "", ""},
		{"only NULs", "\x00\x00", ""},
		{"what a terminal obeys", "a\x1b[2J\x00b\nc\x7f\x00", "a?[2J b?c?"},
		{"not UTF-8", "a\xff\x00", "a?"},
		{"letters", "жук\x00日本\x00", "жук 日本"},
		{"a long one", strings.Repeat("x", 5000), strings.Repeat("x", snapshot.MaxCommand)},
		{"a long one of long letters", "x" + strings.Repeat("日", 5000), "x" + strings.Repeat("日", (snapshot.MaxCommand-1)/3)},
	} {
		pid := snapshot.PID(10 + i)
		add(t, fs, pid, map[string]string{"cmdline": row.cmdline})
		got := commandLine(t, fs, pid)
		require.Equal(t, row.want, got, row.what)
		require.LessOrEqual(t, len(got), snapshot.MaxCommand)
		require.True(t, utf8.ValidString(got))
		require.NoError(t, snapshot.CheckText("command", got))
	}
	add(t, fs, 9, nil)
	require.Empty(t, commandLine(t, fs, 9), "it is not shown")
}

func commandLine(t *testing.T, fs proc.FS, pid snapshot.PID) string {
	t.Helper()
	p, err := fs.Open(pid)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	return p.CommandLine()
}

func TestCommandLineOfARealProcess(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	require.Eventually(t, func() bool { // execve(2) shows it a moment after Start has seen it succeed
		return commandLine(t, proc.FS{}, snapshot.PID(cmd.Process.Pid)) == "sleep 60"
	}, 10*time.Second, time.Millisecond)
}
