package state

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxCopies bounds how many corrupt versions of a file are kept.
const maxCopies = 5

var errTooManyCopies = errors.New("too many copies of corrupt files")

// corrupt keeps a copy of a corrupt file aside and returns the error that names
// both. The copy is named after the file's last change, so that the same
// corrupt file is kept once, however often it is read.
func (s *Store) corrupt(dir *folder, name string, data []byte, st *unix.Stat_t, cause error) error {
	e := &CorruptError{Path: dir.join(name), Cause: cause}
	if kept, err := dir.keep(name, data, st.Mode&sharedMode, time.Unix(st.Mtim.Unix()).In(s.now().Location())); err == nil {
		e.Copy = dir.join(kept)
	}
	return e
}

// keep writes a copy of a file's content beside it, unless one is there. Nobody
// may read the copy who could not read the original: a user may have linked
// somebody else's file here, for a moment in which nobody counted its names.
func (d *folder) keep(name string, data []byte, mode uint32, changed time.Time) (string, error) {
	prefix := name + ".corrupt-"
	aside := prefix + changed.Format("20060102-150405")
	if old, _, err := d.read(aside); err == nil && bytes.Equal(old, data) {
		return aside, nil
	}
	if n, err := d.count(prefix); err != nil || n >= maxCopies {
		return "", errTooManyCopies
	}
	return aside, d.create(aside, data, mode, true)
}

// count is how many files of the folder begin with prefix.
func (d *folder) count(prefix string) (n int, err error) {
	// The descriptor is opened again: reading a folder moves its position.
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
