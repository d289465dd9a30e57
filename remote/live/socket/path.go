package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Name is the name of the socket in its folder, and folder the folder's.
const (
	Name   = "controller.sock"
	folder = "genv-controller"
	common = "/run/" + folder + "/" + Name // only root makes folders there
)

// Variable names the socket for controllers and those who look at them; Off is its value for none.
const (
	Variable = "GENV_SOCKET"
	Off      = "off"
)

// DefaultPath is where a controller with this environment and uid opens its socket: in systemd's RuntimeDirectory=, in
// /run for root, and else in the user's XDG_RUNTIME_DIR; empty if there is none of these.
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

// Find returns the socket of a running controller: the one that GENV_SOCKET names, or else
// the user's own or the one in /run, if there is one; empty if there is none.
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

// Dial connects to the controller that listens on a socket. It refuses a process of another user than root, oneself and
// the owner of the folder: in /tmp anybody could listen, show what isn't so, and take actions that nothing comes of.
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

// Answers reports whether a process listens on a socket. An error says that there may be one.
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
