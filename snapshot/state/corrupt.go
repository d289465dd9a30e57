package state

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxCopies bounds how many corrupt versions of a file are kept.
const maxCopies = 5

// corruptSuffix and a time follow the name of a file in the names of its corrupt
// versions.
const corruptSuffix = ".corrupt-"

var errTooManyCopies = errors.New("too many copies of corrupt files")

// keepCorrupt keeps a copy of a corrupt file and returns the error that names both.
// The copy is named after the file's last change, so that the same corrupt file is
// kept only once.
func (t *transaction) keepCorrupt(file stateFile, data []byte, st *unix.Stat_t, cause error) error {
	name := file.String()
	e := &CorruptError{Path: t.dir.join(name), Cause: cause}
	kept := name + corruptSuffix + t.local(st.Mtim).Format("20060102-150405")
	if t.dir.keepCopy(name, kept, data, st.Mode&sharedMode) == nil {
		e.Copy = t.dir.join(kept)
	}
	return e
}

// keepCopy writes a copy of a file unless it exists already. The copy has the
// original's mode: a user may have linked another user's file into the folder, in a
// moment when its links were not counted, and the copy must not make that public.
func (d *folder) keepCopy(name, kept string, data []byte, mode uint32) error {
	if old, _, err := d.read(kept, maxFileSize); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if n, err := d.count(name + corruptSuffix); err != nil || n >= maxCopies {
		return errTooManyCopies
	}
	return d.create(kept, data, mode, true)
}

// count returns how many files of the folder have names that begin with prefix.
func (d *folder) count(prefix string) (n int, err error) {
	// The folder is opened again, since reading it moves the descriptor's position.
	fd, err := unix.Openat(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	list := os.NewFile(uintptr(fd), d.path)
	defer list.Close()
	names, err := list.Readdirnames(-1)
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			n++
		}
	}
	return n, err
}

// moveAside renames a file to one of its corrupt versions, without opening or
// following it. If there are too many of these, it removes the file.
func (d *folder) moveAside(name string, now time.Time) error {
	prefix := name + corruptSuffix
	if n, err := d.count(prefix); err == nil && n >= maxCopies && unix.Unlinkat(d.fd, name, 0) == nil {
		return nil
	}
	to := prefix + now.Format("20060102-150405.000000000")
	if err := ignore(unix.Renameat(d.fd, name, d.fd, to), unix.ENOENT); err != nil {
		return &fs.PathError{Op: "move aside", Path: d.join(name), Err: err}
	}
	return nil
}

// local is a time of a file in the time zone of the Store's clock.
func (s *Store) local(at unix.Timespec) time.Time {
	return time.Unix(at.Unix()).In(s.now().Location())
}
