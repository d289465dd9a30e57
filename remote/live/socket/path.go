package socket

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Name is the name of the socket in its folder, and folder the folder's.
const (
	Name   = "controller.sock"
	folder = "genv-controller"
)

// Variable names the socket for controllers and those who look at them; Off is its value
// for none.
const (
	Variable = "GENV_SOCKET"
	Off      = "off"
)

// DefaultPath is where a controller with this environment and uid opens its socket:
// in systemd's RuntimeDirectory=, in /run for root, and else in the user's XDG_RUNTIME_DIR;
// empty if there is none of these.
func DefaultPath(getenv func(string) string, uid int) string {
	if dir, _, _ := strings.Cut(getenv("RUNTIME_DIRECTORY"), ":"); dir != "" {
		return filepath.Join(dir, Name)
	}
	if uid == 0 {
		return filepath.Join("/run", folder, Name)
	}
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, folder, Name)
	}
	return ""
}

// Find returns the socket of a running controller: the one that GENV_SOCKET names, or else
// the user's own or the one in /run, if there is one; empty if there is none.
func Find(getenv func(string) string, uid int) string {
	switch path := getenv(Variable); path {
	case Off:
		return ""
	case "":
	default:
		return path
	}
	common := filepath.Join("/run", folder, Name)
	switch own := DefaultPath(getenv, uid); {
	case isSocket(own, func(owner int) bool { return owner == uid || owner == 0 }):
		return own
	case isSocket(common, func(int) bool { return true }): // only root makes folders there
		return common
	}
	return ""
}

// isSocket reports whether there is a socket of an owner. In one's own folder it has to be
// one's own: su keeps the XDG_RUNTIME_DIR of another user.
func isSocket(path string, of func(owner int) bool) bool {
	var stat unix.Stat_t
	err := unix.Stat(path, &stat)
	return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFSOCK && of(int(stat.Uid))
}
