package service

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Listen opens the socket at a path, on which every user may connect. A socket that a
// service left is replaced: the caller makes sure that no other service runs.
func Listen(path string) (*net.UnixListener, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o666); err != nil {
		_ = listener.Close()
		return nil, err
	}
	return listener, nil
}
