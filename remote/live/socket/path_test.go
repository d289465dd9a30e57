package socket_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/live/socket"
)

func environ(variables map[string]string) func(string) string {
	return func(name string) string { return variables[name] }
}

func TestDefaultPath(t *testing.T) {
	for want, row := range map[string]struct {
		uid       int
		variables map[string]string
	}{
		"/run/genv-controller/controller.sock":        {variables: map[string]string{"XDG_RUNTIME_DIR": "/run/user/0"}},
		"/run/systemd-made/controller.sock":           {uid: 7, variables: map[string]string{"RUNTIME_DIRECTORY": "/run/systemd-made:/run/second", "XDG_RUNTIME_DIR": "/run/user/7"}},
		"/run/user/7/genv-controller/controller.sock": {uid: 7, variables: map[string]string{"XDG_RUNTIME_DIR": "/run/user/7"}},
		"": {uid: 7, variables: map[string]string{"XDG_RUNTIME_DIR": "relative"}},
	} {
		require.Equal(t, want, socket.DefaultPath(environ(row.variables), row.uid))
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	variables := map[string]string{"XDG_RUNTIME_DIR": dir}
	own := filepath.Join(dir, "genv-controller", socket.Name)
	require.NotEqual(t, own, socket.Find(environ(variables), 7), "there is none")
	listen(t, own)
	require.Equal(t, own, socket.Find(environ(variables), 7))
	variables[socket.Variable] = "/elsewhere"
	require.Equal(t, "/elsewhere", socket.Find(environ(variables), 7))
	variables[socket.Variable] = socket.Off
	require.Empty(t, socket.Find(environ(variables), 7))
}

func TestPeer(t *testing.T) {
	l := listen(t, filepath.Join(t.TempDir(), "s"))
	client, err := net.Dial("unix", l.Addr().String())
	require.NoError(t, err)
	defer client.Close()
	conn, err := l.Accept()
	require.NoError(t, err)
	defer conn.Close()
	peer, known := socket.PeerOf(socket.WithPeer(t.Context(), conn))
	require.True(t, known)
	require.EqualValues(t, os.Getpid(), peer.PID)
	require.EqualValues(t, os.Geteuid(), peer.UID)
}

// TestNoPeer: over TCP and pipes nobody is known.
func TestNoPeer(t *testing.T) {
	_, known := socket.PeerOf(context.Background())
	require.False(t, known)
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	_, known = socket.PeerOf(socket.WithPeer(t.Context(), a))
	require.False(t, known)
}
