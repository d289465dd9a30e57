// Package socket opens and finds the unix socket of a controller, and says who is at the other end of a connection.
// Serve, for TCP and unix sockets, has bounds: slow clients, clients that stop reading, and very many clients delay
// neither other clients nor the shutdown, and can't exhaust the program.
//
//	listener, err := socket.Listen(ctx, path)
//	defer listener.Close()
//	failed, stop := socket.Serve(listener, handler)
//	defer stop()
//	peer, known := socket.PeerOf(request.Context()) // in a handler
//
// A socket belongs to one living controller. The socket of a dead controller is replaced; nothing else is ever removed.
package socket

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Group may connect to a socket, if the controller may give files to it. Its own account and root always may.
const Group = "genv"

// ErrInUse is wrapped when a living process has the socket.
var ErrInUse = errors.New("another process has this socket")

// Listener is an open socket. Close removes it.
type Listener struct {
	net.Listener
	lock *os.File // held for as long as the socket is open
}

// Listen opens a socket. It replaces one on which no process listens, and makes a missing folder.
func Listen(ctx context.Context, path string) (*Listener, error) {
	if err := prepareFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	lock, err := lockFor(ctx, path)
	if err != nil {
		return nil, err
	}
	listener, err := listen(ctx, path)
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	return &Listener{listener, lock}, nil
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	err := l.Listener.Close() // removes the socket
	_ = l.lock.Close()
	return err
}

func prepareFolder(dir string) error {
	mode := os.FileMode(0o755)
	if os.Geteuid() != 0 {
		mode = 0o700
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	var stat unix.Stat_t
	if err := unix.Lstat(dir, &stat); err != nil {
		return &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	switch own := stat.Uid == 0 || int(stat.Uid) == os.Geteuid(); {
	case stat.Mode&unix.S_IFMT != unix.S_IFDIR:
		return &os.PathError{Op: "open", Path: dir, Err: unix.ENOTDIR}
	case !own, stat.Mode&0o022 != 0 && stat.Mode&unix.S_ISVTX == 0:
		return fmt.Errorf("other users may replace files in %s: choose a folder that only root and this account "+
			"may write", dir)
	}
	return nil
}

// lockFor keeps two controllers that start at the same time from both replacing a dead socket.
func lockFor(ctx context.Context, path string) (*os.File, error) {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, &os.PathError{Op: "lock", Path: lock.Name(), Err: err}
		}
		if err := checkDead(ctx, path); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s: %w, which has just started", path, ErrInUse)
	}
	return lock, nil
}

// listen replaces the socket of a dead controller. The caller holds the lock.
func listen(ctx context.Context, path string) (net.Listener, error) {
	var stat unix.Stat_t
	switch err := unix.Lstat(path, &stat); {
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		return nil, &os.PathError{Op: "lstat", Path: path, Err: err}
	case stat.Mode&unix.S_IFMT != unix.S_IFSOCK:
		return nil, fmt.Errorf("%s is not a socket: it is left as it is; choose another path", path)
	default:
		if err := checkDead(ctx, path); err != nil {
			return nil, err
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	// Linux takes the file's mode from the descriptor, so that it is never wider.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, failed)
	}}
	listener, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if gid := GroupID(); gid != 0 && os.Lchown(path, -1, gid) == nil {
		_ = os.Chmod(path, 0o660) // else it stays the account's own
	}
	return listener, nil
}

func checkDead(ctx context.Context, path string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return nil
	case err != nil:
		return err
	}
	defer conn.Close()
	if peer, err := peerOf(conn); err == nil {
		return fmt.Errorf("%s: %w: PID %d", path, ErrInUse, peer.PID)
	}
	return fmt.Errorf("%s: %w", path, ErrInUse)
}

// GroupID is the id of Group; 0 if there is none.
func GroupID() int {
	group, err := user.LookupGroup(Group)
	if err != nil {
		return 0
	}
	gid, _ := strconv.Atoi(group.Gid)
	return gid
}

// ListenTCP opens a port; 0 for any free one.
func ListenTCP(ctx context.Context, address string, port int) (net.Listener, error) {
	where := net.JoinHostPort(address, strconv.Itoa(port))
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", where)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("another program serves on %s: end it (`ss -ltnp 'sport = :%d'` shows which one), or "+
			"choose another port", where, port)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("%s is not an address of this machine: choose one of those that `ip address` lists",
			address)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("only root may serve on port %d: choose one above 1023", port)
	case err != nil:
		return nil, fmt.Errorf("serve on %s: %w", where, err)
	}
	return listener, nil
}

// Peer is the process at the other end of a connection, as the kernel reports it. It may have ended.
type Peer struct {
	PID snapshot.PID
	UID snapshot.UID
	// Login is the user who logged in, which sudo doesn't change; nil if the kernel doesn't know.
	Login *snapshot.UID
}

type contextKey struct{}

// WithPeer is for http.Server.ConnContext, so that handlers find the Peer with PeerOf.
func WithPeer(ctx context.Context, conn net.Conn) context.Context {
	peer, err := peerOf(conn)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, contextKey{}, peer)
}

// PeerOf returns who sent a request; false if it didn't come over a unix socket.
func PeerOf(ctx context.Context) (Peer, bool) {
	peer, known := ctx.Value(contextKey{}).(Peer)
	return peer, known
}

// Self is this process as a Peer.
func Self() Peer {
	self := Peer{PID: snapshot.PID(os.Getpid()), UID: snapshot.UID(os.Geteuid())} //nolint:gosec // a uid fits
	if data, err := os.ReadFile("/proc/self/loginuid"); err == nil {
		self.Login = parseLogin(string(data))
	}
	return self
}

// peerOf returns the process at the other end: for a client the one that listens.
func peerOf(conn net.Conn) (Peer, error) {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return Peer{}, syscall.ENOTSOCK
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	ucred, err := proc.PeerOf(raw)
	if err != nil {
		return Peer{}, err
	}
	peer := Peer{PID: snapshot.PID(ucred.Pid), UID: snapshot.UID(ucred.Uid)}
	err = raw.Control(func(fd uintptr) { peer.Login = loginOf(int(fd), peer.PID) })
	return peer, err
}

// loginOf is the user whose login led to the process at the other end of a socket, even by sudo: see loginuid in
// proc(5). It is nil if the kernel doesn't know, as for services, or if the PID may be another process's now.
func loginOf(fd int, pid snapshot.PID) *snapshot.UID {
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil { // before Linux 6.5
		pidfd, err = unix.PidfdOpen(int(pid), 0)
	}
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(pidfd) }()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/loginuid", pid))
	if err != nil {
		return nil
	}
	// Checked last: as long as the process exists, no other process has its PID.
	if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil && err != unix.EPERM {
		return nil
	}
	return parseLogin(string(data))
}

// parseLogin reads /proc/PID/loginuid, which is the highest number if there was no login.
func parseLogin(text string) *snapshot.UID {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
	if err != nil || n == math.MaxUint32 {
		return nil
	}
	return new(snapshot.UID(n))
}

// Name is that of the socket in its folder.
const (
	Name   = "controller.sock"
	folder = "genv-controller"
	common = "/run/" + folder + "/" + Name // only root makes folders there
)

// Variable is the environment variable that names the socket, for controllers and viewers; its value Off means none.
const (
	Variable = "GENV_SOCKET"
	Off      = "off"
)

// DefaultPath is where a controller opens its socket: in systemd's RuntimeDirectory=, in /run for root, and else in the
// user's XDG_RUNTIME_DIR; empty if there is none of these.
func DefaultPath(getenv func(string) string, uid int) string {
	dir, _, _ := strings.Cut(getenv("RUNTIME_DIRECTORY"), ":")
	switch user := getenv("XDG_RUNTIME_DIR"); {
	case dir != "":
		return filepath.Join(dir, Name)
	case uid == 0:
		return common
	case filepath.IsAbs(user):
		return filepath.Join(user, folder, Name)
	}
	return ""
}

// Find returns the socket of a running controller: the one that GENV_SOCKET names, or else the user's own or the one in
// /run; empty if there is none.
func Find(getenv func(string) string, uid int) string {
	named, own := getenv(Variable), DefaultPath(getenv, uid)
	switch {
	case named == Off:
		return ""
	case named != "":
		return named
	case isSocket(own, func(owner int) bool { return owner == uid || owner == 0 }):
		return own
	case isSocket(common, func(int) bool { return true }):
		return common
	}
	return ""
}

// isSocket reports whether there is a socket of an owner: su keeps the XDG_RUNTIME_DIR of another user.
func isSocket(path string, of func(owner int) bool) bool {
	var stat unix.Stat_t
	err := unix.Stat(path, &stat)
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFSOCK && of(int(stat.Uid))
}

// Dial connects to a controller. The process that listens must belong to root, to the caller or to the owner of the
// folder: in /tmp, any user could listen, show false data and ignore requests.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := checkListener(conn, filepath.Dir(path)); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// Answers reports whether a process listens on a socket. After an error there may be one.
func Answers(ctx context.Context, path string) (bool, error) {
	conn, err := Dial(ctx, path)
	switch {
	case err == nil:
		return true, conn.Close()
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ENOENT):
		return false, nil
	}
	return false, err
}

func checkListener(conn net.Conn, dir string) error {
	peer, err := peerOf(conn)
	if err != nil {
		return err
	}
	if peer.UID == 0 || int64(peer.UID) == int64(os.Geteuid()) {
		return nil
	}
	var folder unix.Stat_t
	if err := unix.Stat(dir, &folder); err != nil {
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if others := folder.Mode&0o022 != 0 && folder.Mode&unix.S_ISVTX == 0; others || folder.Uid != uint32(peer.UID) {
		return fmt.Errorf("process %d, which listens there, is of uid %d: not of root, of you or of the owner of %s",
			peer.PID, peer.UID, dir)
	}
	return nil
}
