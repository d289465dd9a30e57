package mail

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxPassword is how long a password may be.
const maxPassword = 1024 // bytes

// ReadPassword reads a password: the first line of a file that belongs to root or to the
// account of this program, and that other users can't read and the group can't change.
func ReadPassword(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s: it is not a regular file", path)
	case !ok || owner.Uid != 0 && int(owner.Uid) != os.Geteuid():
		return "", fmt.Errorf("%s: it belongs to another user; chown it to root or to the account that runs this", path)
	case info.Mode().Perm()&0o027 != 0:
		return "", fmt.Errorf("%s: its mode is %#o, so that others may read or change it; chmod it to 0600 or 0640", path, info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxPassword+1))
	if err != nil {
		return "", err
	}
	password, rest, _ := strings.Cut(string(data), "\n")
	password = strings.TrimSuffix(password, "\r")
	switch {
	case len(data) > maxPassword:
		return "", fmt.Errorf("%s: it is longer than %d bytes", path, maxPassword)
	case strings.TrimSpace(rest) != "":
		return "", fmt.Errorf("%s: it has more than one line", path)
	case password == "":
		return "", fmt.Errorf("%s: %w", path, errNoPassword)
	}
	return password, nil
}

var errNoPassword = errors.New("it holds no password")
