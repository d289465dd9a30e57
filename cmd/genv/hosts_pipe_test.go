package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/command"
)

// TestHostsFromAPipe: hosts may come from a pipe, and a FIFO that is
// not written to delays no command.
func TestHostsFromAPipe(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "hosts")
	require.NoError(t, unix.Mkfifo(fifo, 0o666))
	r := genv(t, "remote", "devices", "--hostfile", fifo)
	require.Equal(t, command.ExitFailed, r.code)
	require.Contains(t, r.err, "no hosts")

	config := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(config, []byte("Host *\n Port 1\n"), 0o600))
	from := finished(t, exec.Command("bash", "-c", genvProgram(t)+" remote -F "+config+" --hostfile <(sleep 0.1; echo 127.93.7.7) devices"))
	require.Equal(t, command.ExitNoneLeft, from.code)
	require.Contains(t, from.err, "127.93.7.7: no connection")
}
