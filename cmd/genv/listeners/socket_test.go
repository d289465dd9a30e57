package listeners_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/cmd/genv/listeners"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/live/socket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	feed := live.NewFeed(live.Options{Now: time.Now})
	actions := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, known := socket.PeerOf(r.Context())
		require.True(t, known)
		require.NoError(t, json.NewEncoder(w).Encode(peer))
	})
	config := listeners.Config{Socket: listeners.Socket{Path: path, Required: true}}
	open, err := listeners.Open(t.Context(), config, listeners.Shown{Feed: feed, Actions: actions}, zerolog.Nop())
	require.NoError(t, err)
	require.Equal(t, []string{path}, open.Addresses)
	viewer := live.NewClient(path)
	fleet, err := viewer.Fleet(t.Context())
	require.NoError(t, err)
	require.Equal(t, "genv.live.fleet/1", fleet.Schema)
	viewer.Close()

	conn, err := net.Dial("unix", path)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /api/v1/actions HTTP/1.1\r\nHost: controller\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer response.Body.Close()
	var peer socket.Peer
	require.NoError(t, json.NewDecoder(response.Body).Decode(&peer))
	require.EqualValues(t, os.Getpid(), peer.PID)
	require.EqualValues(t, os.Geteuid(), peer.UID)

	_, err = listeners.Open(t.Context(), config, listeners.Shown{Feed: feed}, zerolog.Nop())
	require.ErrorIs(t, err, socket.ErrInUse, "a living controller has it")
	config.Socket.Required = false
	without, err := listeners.Open(t.Context(), config, listeners.Shown{Feed: feed}, zerolog.Nop())
	require.NoError(t, err, "the default one is no reason not to enforce")
	require.Empty(t, without.Addresses)
	without.Close()
	open.Close()
	require.NoFileExists(t, path)
}
