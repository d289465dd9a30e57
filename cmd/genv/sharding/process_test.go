package sharding

import (
	"io"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// systemd-tmpfiles removes a folder in /tmp that was empty for days. A controller that had no shard
// for so long must be able to start the process of one nevertheless.
func TestNoFolderIsKept(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	r := &run{
		Options: Options{Program: "true", Log: zerolog.Nop()}, errors: os.Stderr,
		out: &output{to: io.Discard}, woken: make(chan struct{}, 1),
	}
	p, err := r.start(3)
	require.NoError(t, err)
	select {
	case err := <-p.ended:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		t.Fatal("the process has not ended")
	}
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left, "nothing is kept from process to process, nor left behind")
}
