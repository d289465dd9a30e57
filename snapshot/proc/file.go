package proc

import (
	"errors"
	"fmt"
	"io/fs"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// HasFile says whether there is a regular file at a path that belongs to a user. Where its file system doesn't answer
// (FUSE, a broken NFS), that is ErrUnreadable: the helper looks, since no signal ends a process that waits for one.
func (f FS) HasFile(path string, uid snapshot.UID) (bool, error) {
	switch {
	case f.Reader == nil:
		return hasFile(path, uid)
	case !utf8.ValidString(path): // in a request it would be another one
		return false, fmt.Errorf("%w: %q", ErrUnreadable, path)
	}
	a, err := f.Reader.ask(readRequest{Read: readFile, Key: path, Start: snapshot.StartTime(uid)}, readWithin)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return a.Found, a.err()
}

func hasFile(path string, uid snapshot.UID) (bool, error) {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return false, nil
	}
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && snapshot.UID(st.Uid) == uid, err
}
