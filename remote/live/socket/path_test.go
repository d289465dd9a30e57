package socket_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

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
	dir, uid := t.TempDir(), os.Geteuid()
	own := filepath.Join(dir, "genv-controller", socket.Name)
	variables := map[string]string{"XDG_RUNTIME_DIR": dir}
	if uid == 0 { // who has no XDG_RUNTIME_DIR
		variables["RUNTIME_DIRECTORY"] = filepath.Dir(own)
	}
	require.NotEqual(t, own, socket.Find(environ(variables), uid), "there is none")
	listen(t, own)
	require.Equal(t, own, socket.Find(environ(variables), uid))
	if uid != 0 {
		require.NotEqual(t, own, socket.Find(environ(variables), uid+1), "it is of somebody else")
	} else {
		require.NoError(t, os.Chown(own, 4711, -1))
		require.NotEqual(t, own, socket.Find(environ(variables), uid), "it is of somebody else")
	}
	variables[socket.Variable] = "/elsewhere"
	require.Equal(t, "/elsewhere", socket.Find(environ(variables), uid))
	variables[socket.Variable] = socket.Off
	require.Empty(t, socket.Find(environ(variables), uid))
}

// TestDialSomebodyElse: a process of another user listens, as if it were the controller.
func TestDialSomebodyElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can listen as another user")
	}
	dir, err := os.MkdirTemp("", "dial") // not below that of the test, which others may not enter
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o777|os.ModeSticky))
	path := filepath.Join(dir, "s")
	listening := make(chan error)
	go func() {
		runtime.LockOSThread() // which ends with the goroutine: only this thread is the other user
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), 4711, ^uintptr(0)); errno != 0 {
			listening <- errno
			return
		}
		l, err := net.Listen("unix", path)
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
		listening <- err
	}()
	require.NoError(t, <-listening)

	_, err = socket.Dial(t.Context(), path)
	require.ErrorContains(t, err, "is of uid 4711: not of root, of you or of the owner of "+dir)
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Chown(dir, 4711, -1))
	conn, err := socket.Dial(t.Context(), path)
	require.NoError(t, err, "a service account has its own folder")
	require.NoError(t, conn.Close())
	require.NoError(t, os.Chmod(dir, 0o777))
	_, err = socket.Dial(t.Context(), path)
	require.Error(t, err, "anybody may replace the socket")
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

// TestNoPeer: over TCP and pipes the peer is unknown.
func TestNoPeer(t *testing.T) {
	_, known := socket.PeerOf(context.Background())
	require.False(t, known)
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	_, known = socket.PeerOf(socket.WithPeer(t.Context(), a))
	require.False(t, known)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
