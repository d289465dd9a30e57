package enforcement

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
)

// A receiver that is stopped reads nothing: what it can't queue is dropped. It gets what is sent when
// it goes on.
func TestAReceiverThatIsStopped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	t.Setenv("NOTIFY_SOCKET", path)
	receiver, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	defer receiver.Close()
	sent := 0
	for send("STATUS=early") == nil {
		sent++
		require.Less(t, sent, 10000, "everything is queued")
	}
	begun := time.Now()
	NotifySystemd(zerolog.Nop(), "STATUS=dropped")
	require.Less(t, time.Since(begun), 10*time.Second)
	buffer := make([]byte, 100)
	read := func() string {
		require.NoError(t, receiver.SetReadDeadline(time.Now().Add(10*time.Second)))
		n, err := receiver.Read(buffer)
		require.NoError(t, err)
		return string(buffer[:n])
	}
	for range sent {
		require.Equal(t, "STATUS=early", read())
	}
	NotifySystemd(zerolog.Nop(), "STATUS=late")
	require.Equal(t, "STATUS=late", read())
}

func TestWithoutAReceiver(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	require.NoError(t, send("READY=1"))
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "missing"))
	require.Error(t, send("READY=1"))
	NotifySystemd(zerolog.Nop(), "READY=1")
}
