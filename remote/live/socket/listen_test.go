package socket_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func listen(t *testing.T, path string) *socket.Listener {
	l := proctest.Try(socket.Listen(t.Context(), path)).OK(t)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// leaveDead leaves a socket on which no process listens, as one that was killed does.
func leaveDead(t *testing.T, path string) {
	l := proctest.Try(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})).OK(t)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
}

func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "genv-controller")
	path := filepath.Join(dir, socket.Name)
	l := listen(t, path)
	info := proctest.Try(os.Lstat(path)).OK(t)
	require.Equal(t, fs.ModeSocket, info.Mode().Type())
	require.Contains(t, []fs.FileMode{0o600, 0o660}, info.Mode().Perm(), "0660 where there is a group genv")
	folder := proctest.Try(os.Stat(dir)).OK(t)
	want := fs.FileMode(0o755)
	if os.Geteuid() != 0 {
		want = 0o700
	}
	require.Equal(t, want, folder.Mode().Perm())
	require.NoError(t, l.Close())
	require.NoFileExists(t, path)
	listen(t, path) // again
}

// TestALivingController keeps its socket, and is named.
func TestALivingController(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l := listen(t, path)
	for range 3 {
		_, err := socket.Listen(t.Context(), path)
		require.ErrorIs(t, err, socket.ErrInUse)
		require.ErrorContains(t, err, fmt.Sprintf("PID %d", os.Getpid()))
	}
	conn := proctest.Try(net.Dial("unix", path)).OK(t, "it is still there")
	require.NoError(t, conn.Close())
	_ = l
}

// TestAnotherProgram has the socket: it takes no part in the lock.
func TestAnotherProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	other := proctest.Try(net.Listen("unix", path)).OK(t)
	defer other.Close()
	require.ErrorIs(t, proctest.Try(socket.Listen(t.Context(), path)).Err, socket.ErrInUse)
	require.FileExists(t, path)
}

func TestADeadControllersSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	leaveDead(t, path)
	require.NoError(t, os.WriteFile(path+".lock", nil, 0o600))
	listen(t, path)
	require.NoError(t, proctest.Try(net.Dial("unix", path)).OK(t).Close())
}

// TestAKilledProcess: nothing of it is in the way, also if its PID has become another's.
func TestAKilledProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	cmd := exec.Command(os.Args[0], "-test.run=^TestListenUntilKilled$")
	cmd.Env = append(os.Environ(), "GENV_TEST_SOCKET="+path)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Wait() }()
	require.Eventually(t, func() bool { _, err := os.Stat(path); return err == nil }, time.Minute, 5*time.Millisecond)
	require.Eventually(t, func() bool {
		_, err := socket.Listen(t.Context(), path)
		return errors.Is(err, socket.ErrInUse) && err.Error() == fmt.Sprintf("%s: another process has this socket: PID %d", path, cmd.Process.Pid)
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.FileExists(t, path)
	listen(t, path)
}

func TestListenUntilKilled(t *testing.T) {
	path := os.Getenv("GENV_TEST_SOCKET")
	if path == "" {
		t.Skip("it is a child of another test")
	}
	listen(t, path)
	time.Sleep(time.Minute)
}

// TestManyAtOnce: one of them gets the socket.
func TestManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	leaveDead(t, path)
	var work sync.WaitGroup
	var got atomic.Int32
	for range 50 {
		work.Go(func() {
			if l, err := socket.Listen(t.Context(), path); err == nil {
				got.Add(1)
				t.Cleanup(func() { _ = l.Close() })
			} else if !errors.Is(err, socket.ErrInUse) {
				t.Error(err)
			}
		})
	}
	work.Wait()
	require.EqualValues(t, 1, got.Load())
}

// TestWhatIsLeftAlone: nothing but a dead socket is removed, and no link is followed.
func TestWhatIsLeftAlone(t *testing.T) {
	for name, prepare := range map[string]func(path, elsewhere string) error{
		"a file":                 func(path, _ string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"a folder":               func(path, _ string) error { return os.Mkdir(path, 0o700) },
		"a FIFO":                 func(path, _ string) error { return syscall.Mkfifo(path, 0o600) },
		"a link to a file":       func(path, elsewhere string) error { return os.Symlink(elsewhere, path) },
		"a link to nothing":      func(path, elsewhere string) error { return os.Symlink(elsewhere+"/none", path) },
		"a link instead of lock": func(path, elsewhere string) error { return os.Symlink(elsewhere, path+".lock") },
		"a folder for all":       func(path, _ string) error { return os.Chmod(filepath.Dir(path), 0o777) },
		"a folder for the group": func(path, _ string) error { return os.Chmod(filepath.Dir(path), 0o770) },
		"a link to a folder": func(path, elsewhere string) error {
			dir := filepath.Dir(path)
			return errors.Join(os.Remove(dir), os.Symlink(filepath.Dir(elsewhere), dir))
		},
		"no folder above it": func(path, _ string) error { return os.Remove(filepath.Dir(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			elsewhere := filepath.Join(t.TempDir(), "precious")
			require.NoError(t, os.WriteFile(elsewhere, []byte("precious"), 0o600))
			path := filepath.Join(t.TempDir(), "d", "s")
			require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
			require.NoError(t, prepare(path, elsewhere))
			if name == "no folder above it" {
				path = filepath.Join(filepath.Dir(path), "e", "s")
			}
			before, _ := os.Lstat(path)
			require.Error(t, proctest.Try(socket.Listen(t.Context(), path)).Err)
			after, _ := os.Lstat(path)
			require.Equal(t, before != nil, after != nil)
			require.True(t, before == nil || os.SameFile(before, after))
			require.Equal(t, "precious", proctest.ReadText(t, elsewhere))
		})
	}
}

// TestASharedFolder like /tmp is one in which others can't replace files.
func TestASharedFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tmp")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Chmod(dir, 0o777|fs.ModeSticky))
	listen(t, filepath.Join(dir, "s"))
}

func TestAFolderOfAnotherUser(t *testing.T) {
	proctest.NeedRoot(t) // only root can make a folder of another user
	dir := filepath.Join(t.TempDir(), "d")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Chown(dir, 65534, 65534))
	require.ErrorContains(t, proctest.Try(socket.Listen(t.Context(), filepath.Join(dir, "s"))).Err, "other users may replace files")
}

func TestALongPath(t *testing.T) {
	require.Error(t, proctest.Try(socket.Listen(t.Context(), filepath.Join(t.TempDir(), fmt.Sprintf("%0150d", 7)))).Err)
}

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
	proctest.NeedRoot(t) // to listen as another user
	dir := proctest.PublicDir(t, 0o777|os.ModeSticky)
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

	require.ErrorContains(t, proctest.Try(socket.Dial(t.Context(), path)).Err, "is of uid 4711: not of root, of you or of the owner of "+dir)
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Chown(dir, 4711, -1))
	conn := proctest.Try(socket.Dial(t.Context(), path)).OK(t, "a service account has its own folder")
	require.NoError(t, conn.Close())
	require.NoError(t, os.Chmod(dir, 0o777))
	require.Error(t, proctest.Try(socket.Dial(t.Context(), path)).Err, "anybody may replace the socket")
}

func TestPeer(t *testing.T) {
	l := listen(t, filepath.Join(t.TempDir(), "s"))
	client := proctest.Try(net.Dial("unix", l.Addr().String())).OK(t)
	defer client.Close()
	conn := proctest.Try(l.Accept()).OK(t)
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
