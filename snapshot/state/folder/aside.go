package folder

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// MaxCopies bounds how many corrupt versions of a file are kept.
const MaxCopies = 5

// corruptSuffix and a time follow the name of a file in the names of its corrupt
// versions.
const corruptSuffix = ".corrupt-"

var errTooManyCopies = errors.New("too many copies of corrupt files")

// KeepCopy writes a copy of a file, named after the time of its last change, and returns
// its path; the same version is kept only once. The copy has the original's mode: a user
// may have linked another user's file into the folder, in a moment when its links were
// not counted, and the copy must not make that public.
func (d *Folder) KeepCopy(name string, data []byte, mode uint32, changed time.Time) (path string, err error) {
	kept := name + corruptSuffix + changed.Format("20060102-150405")
	if old, _, err := d.Read(kept, int64(len(data))); err == nil && bytes.Equal(old, data) {
		return d.Join(kept), nil
	}
	if n, err := d.countCopies(name); err != nil || n >= MaxCopies {
		return "", errTooManyCopies
	}
	if err := d.create(kept, data, mode&SharedMode, true); err != nil {
		return "", err
	}
	return d.Join(kept), nil
}

// MoveAside renames a file to one of its corrupt versions, without opening or
// following it. If there are too many of these, it removes the file.
func (d *Folder) MoveAside(name string, now time.Time) error {
	if n, err := d.countCopies(name); err == nil && n >= MaxCopies && unix.Unlinkat(d.fd, name, 0) == nil {
		return nil
	}
	to := name + corruptSuffix + now.Format("20060102-150405.000000000")
	if err := Ignore(unix.Renameat(d.fd, name, d.fd, to), unix.ENOENT); err != nil {
		return &fs.PathError{Op: "move aside", Path: d.Join(name), Err: err}
	}
	return nil
}

// countCopies returns how many corrupt versions of a file there are.
func (d *Folder) countCopies(name string) (n int, err error) {
	// The folder is opened again, since reading it moves the descriptor's position.
	fd, err := unix.Openat(d.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	list := os.NewFile(uintptr(fd), d.Path)
	defer list.Close()
	names, err := list.Readdirnames(-1)
	for _, other := range names {
		if strings.HasPrefix(other, name+corruptSuffix) {
			n++
		}
	}
	return n, err
}
