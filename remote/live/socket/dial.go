package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Dial connects to the controller that listens on a socket. It refuses a process of another user
// than root, oneself and the owner of the folder: in /tmp anybody could listen, show what isn't
// so, and take actions that nothing comes of.
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

// Answers reports whether a process listens on a socket. An error says that there may be
// one.
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
		return fmt.Errorf("process %d, which listens there, is of uid %d: not of root, of you or of the owner of %s", peer.PID, peer.UID, dir)
	}
	return nil
}
