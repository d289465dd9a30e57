package fleet_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
)

// TestHostsFromAPipe: hosts may come from a pipe, and a FIFO that is
// not written to delays no command.
func TestHostsFromAPipe(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "hosts")
	require.NoError(t, unix.Mkfifo(fifo, 0o666))
	r := genvtest.Run(t, "remote", "devices", "--hostfile", fifo)
	require.Equal(t, command.ExitFailed, r.Code)
	require.Contains(t, r.Err, "no hosts")

	config := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(config, []byte("Host *\n Port 1\n"), 0o600))
	from := genvtest.Exec(t, exec.Command("bash", "-c", genvtest.Program(t)+" remote -F "+config+" --hostfile <(sleep 0.1; echo 127.93.7.7) devices"))
	require.Equal(t, command.ExitNoneLeft, from.Code)
	require.Contains(t, from.Err, "127.93.7.7: no connection")
}
