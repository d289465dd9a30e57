package sharding

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
)

// waiting doesn't handle SIGHUP until the file "handle" is there, as a process that is starting.
const waiting = `until test -e handle; do sleep 0.01; done; trap 'echo read again; exit 0' HUP; touch handles; while :; do sleep 0.01; done`

// A SIGHUP would end a process that has just been started: it is sent when the process handles it.
func TestAReloadWhileAProcessStarts(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	t.Chdir(t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	var printed bytes.Buffer
	r := &run{
		Options: Options{
			Config: Config{Count: 1}, Program: "sh", Args: []string{"-c", waiting}, Log: zerolog.Nop(),
			Hosts: func() ([]remote.Host, error) { return []remote.Host{{Name: "gpu-01"}}, nil },
		},
		errors: os.Stderr, out: &output{to: &printed}, woken: make(chan struct{}, 1), processes: make(map[int]*process),
	}
	p, err := r.start(0)
	require.NoError(t, err)
	r.processes[0] = p
	r.reload()
	require.NoError(t, os.WriteFile("handle", nil, 0o600))
	require.Eventually(t, func() bool { _, err := os.Stat("handles"); return err == nil || len(p.ended) > 0 }, 30*time.Second, time.Millisecond)
	require.Empty(t, p.ended, "the signal has ended it")

	socket, err := net.Dial("unixgram", filepath.Join(p.dir, "notify"))
	require.NoError(t, err)
	defer socket.Close()
	_, err = socket.Write([]byte("READY=1"))
	require.NoError(t, err)
	select {
	case err := <-p.ended:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		p.signal(os.Kill)
		require.Fail(t, "it got no SIGHUP")
	}
	require.Equal(t, "read again\n", printed.String())
}
