package openssh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// CheckMaster returns an error that says why no ssh runs as ControlMaster at a path: one that
// answers, and of this user alone. A master speaks first.
func CheckMaster(ctx context.Context, path string) error {
	if err := checkOwner(path); err != nil {
		return err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err = checkPeer(conn.(*net.UnixConn)); err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	if err != nil {
		return fmt.Errorf("%s: the ssh there does not answer: %w", path, errors.Join(err, context.Cause(ctx)))
	}
	return nil
}

// checkOwner refuses what ssh would not have made.
func checkOwner(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s is not a socket", path)
	case !ok || int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("%s belongs to another user", path)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s can be used by others: chmod 600 it", path)
	}
	return nil
}

// checkPeer refuses a server that another user runs, whatever the path leads to.
func checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, failed); err == nil && int(peer.Uid) != os.Geteuid() {
		err = fmt.Errorf("the program there belongs to uid %d", peer.Uid)
	}
	return err
}
