package socket

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// Peer is the process at the other end of a connection, as the kernel reports it. The
// process may have ended, or passed the connection on.
type Peer struct {
	PID snapshot.PID
	UID snapshot.UID
	// Login is the user who logged in, which sudo doesn't change; nil if the kernel
	// doesn't know.
	Login *snapshot.UID
}

type peerKey struct{}

// WithPeer is for http.Server.ConnContext: handlers then find the Peer with PeerOf.
func WithPeer(ctx context.Context, conn net.Conn) context.Context {
	peer, err := peerOf(conn)
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, peer)
}

// PeerOf returns who sent a request; false if it didn't come over a unix socket.
func PeerOf(ctx context.Context) (Peer, bool) {
	peer, known := ctx.Value(peerKey{}).(Peer)
	return peer, known
}

// Self is this process, as it would be at the other end of a connection.
func Self() Peer {
	self := Peer{PID: snapshot.PID(os.Getpid()), UID: snapshot.UID(os.Geteuid())} //nolint:gosec // a uid fits
	if data, err := os.ReadFile("/proc/self/loginuid"); err == nil {
		self.Login = parseLogin(string(data))
	}
	return self
}

// peerOf asks the kernel. For a connection to a listener, it is the process that listens.
func peerOf(conn net.Conn) (Peer, error) {
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return Peer{}, syscall.ENOTSOCK
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var ucred *unix.Ucred
	var failed error
	var login *snapshot.UID
	err = raw.Control(func(fd uintptr) {
		if ucred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); failed == nil {
			login = loginOf(int(fd), snapshot.PID(ucred.Pid))
		}
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return Peer{}, err
	}
	return Peer{PID: snapshot.PID(ucred.Pid), UID: snapshot.UID(ucred.Uid), Login: login}, nil
}

// loginOf is the user who logged in and started the process at the other end of a socket,
// whatever the process became since, as by sudo: see loginuid in proc(5). It is nil if the
// kernel doesn't know, as for services, or if it can't be said of which process it is.
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
	// Only now: while the process is there, its PID is of no other one.
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
	uid := snapshot.UID(n)
	return &uid
}
