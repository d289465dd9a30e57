package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// mayRepair says whether this genv repairs what a user did to the state folder: it
// is root's, or in a test that of the owner of the folder of root's notes.
func (s *Store) mayRepair() bool {
	if s.root == "" || !s.machine.Namespaces().known() {
		return false
	}
	var st unix.Stat_t
	if err := unix.Stat(s.root, &st); err != nil {
		return errors.Is(err, unix.ENOENT) && os.Geteuid() == 0
	}
	return int(st.Uid) == os.Geteuid() && st.Mode&0o022 == 0
}

// open opens the state folder. Root removes what another user put in its place,
// and gives it back the mode that all users need.
func (s *Store) open() (*folder, error) {
	dir, err := openFolder(s.dir)
	if !s.mayRepair() {
		return dir, err
	}
	var planted []string
	if errors.Is(err, ErrUnsafe) {
		what, removeErr := s.removePlanted()
		if removeErr != nil {
			return nil, fmt.Errorf("%w; and it could not be removed: %w", err, removeErr)
		}
		if dir, err = openFolder(s.dir); err == nil {
			planted = append(planted, what)
		}
	}
	if err != nil {
		return nil, err
	}
	dir.repaired = slices.Concat(planted, s.widen(dir))
	return dir, nil
}

// removePlanted removes the link, or moves the file aside, that another user put
// in the state folder's place.
func (s *Store) removePlanted() (what string, err error) {
	path := s.path()
	parent, err := openDir(unix.AT_FDCWD, filepath.Dir(path), 0)
	if err != nil {
		return "", err
	}
	defer parent.close()
	var st unix.Stat_t
	name := filepath.Base(path)
	if err := unix.Fstatat(parent.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return "", err
	}
	if st.Uid == 0 {
		return "", errors.New("it is root's")
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		err = unix.Unlinkat(parent.fd, name, 0)
	} else {
		err = parent.aside(name, s.now())
	}
	return fmt.Sprintf("%s was not a folder: %s had put something else in its place, which was removed", path, s.user(snapshot.UID(st.Uid))), err
}

// widen gives a state folder back the mode that all users need, if its owner has
// removed it. A folder without state files is left as it is: it may be a wrong
// one, given by mistake.
func (s *Store) widen(dir *folder) []string {
	const mode = 0o777
	var st, lock unix.Stat_t
	if unix.Fstat(dir.fd, &st) != nil || st.Mode&mode == mode || st.Uid == 0 ||
		unix.Fstatat(dir.fd, lockFile, &lock, unix.AT_SYMLINK_NOFOLLOW) != nil || unix.Fchmod(dir.fd, mode) != nil {
		return nil
	}
	return []string{fmt.Sprintf("%s of %s had mode %04o, by which others cannot use it: repaired", dir.path, s.user(snapshot.UID(st.Uid)), st.Mode&0o7777)}
}

// repairLock makes a lock file usable for all users again. An empty file gets its
// mode back. A file with content may be private, so it is moved aside, and so is
// what is no regular file: replaced says that this was done.
func (s *Store) repairLock(dir *folder, name string, file *os.File, st *unix.Stat_t) (replaced bool) {
	switch {
	case file == nil:
		if unix.Fstatat(dir.fd, name, st, unix.AT_SYMLINK_NOFOLLOW) != nil || dir.aside(name, s.now()) != nil {
			return false
		}
	case !narrowed(st):
		return false
	case st.Size == 0:
		if unix.Fchmod(int(file.Fd()), sharedMode) != nil {
			return false
		}
	case dir.aside(name, s.now()) != nil:
		return false
	}
	dir.repaired = append(dir.repaired, fmt.Sprintf("%s of %s could not be used as a lock (mode %07o): repaired",
		dir.join(name), s.user(snapshot.UID(st.Uid)), st.Mode))
	return file == nil || st.Size != 0
}
