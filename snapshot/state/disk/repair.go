package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// mayRepair says whether this genv repairs what users did to the state folder: it runs
// as root, or in a test as the owner of the folder of root's notes.
func (s *Store) mayRepair() bool {
	if s.RootDir == "" || !s.System.Namespaces().Known() {
		return false
	}
	var st unix.Stat_t
	if err := unix.Stat(s.RootDir, &st); err != nil {
		return errors.Is(err, unix.ENOENT) && os.Geteuid() == 0
	}
	return int(st.Uid) == os.Geteuid() && st.Mode&0o022 == 0
}

// openShared opens the state folder that all users share. Root removes what another user put in its place, and
// restores the mode that all users need. It doesn't touch a file system that a user has mounted there.
func (s *Store) openShared() (*folder.Folder, error) {
	if !s.mayRepair() {
		return folder.Open(s.dir)
	}
	if err := s.tampered(); err != nil {
		return nil, err
	}
	dir, err := folder.Open(s.dir)
	var repairs []string
	if errors.Is(err, folder.ErrUnsafe) {
		what, removeErr := s.removePlanted()
		if removeErr != nil {
			return nil, fmt.Errorf("%w; and it could not be removed: %w", err, removeErr)
		}
		repairs = append(repairs, what)
		dir, err = folder.Open(s.dir)
	}
	if err != nil {
		return nil, err
	}
	dir.Repairs, dir.NoMounts = repairs, true // one that comes and goes was not there just now
	restoreMode(dir)
	return dir, nil
}

// tampered is an ErrTampered if a user has mounted a file system over the folder.
func (s *Store) tampered() error {
	if mount := system.UsersMount(system.RealProc, s.path()); mount != "" {
		return fmt.Errorf("%w: %s, and root goes by its own copy; have root unmount it: umount --lazy %s", ErrTampered, mount, s.path())
	}
	return nil
}

// removePlanted removes a link, or moves a file aside, that another user put in the
// state folder's place.
func (s *Store) removePlanted() (what string, err error) {
	path := s.path()
	parent, err := folder.OpenExisting(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	defer parent.Close()
	name := filepath.Base(path)
	st, err := parent.Stat(name)
	if err == nil && st.Uid == 0 {
		err = errors.New("it belongs to root")
	}
	if err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		err = parent.Remove(name)
	} else {
		err = parent.MoveAside(name, s.Now())
	}
	return fmt.Sprintf("%s was not a folder: %s had put something else in its place, which was removed", path, system.DescribeUser(st.Uid)), err
}

// restoreMode restores the mode that all users need, if the folder's owner has changed
// it. A folder without state files is left unchanged: its path may be a mistake.
func restoreMode(d *folder.Folder) {
	const mode = 0o777
	st, err := d.Status()
	if err != nil || st.Mode&mode == mode || st.Uid == 0 {
		return
	}
	if _, err := d.Stat(lockFile); err != nil || d.Chmod(mode) != nil {
		return
	}
	d.Repairs = append(d.Repairs, fmt.Sprintf("%s of %s had mode %04o, by which others cannot use it: repaired", d.Path, system.DescribeUser(st.Uid), st.Mode&0o7777))
}

// repairLock makes a lock file usable for all users again. An empty file gets its mode
// back. A file with content may be private, so it is moved aside, as is anything but a
// regular file, for which file is nil. replaced says that it was moved aside.
func (s *Store) repairLock(dir *folder.Folder, name string, file *os.File, st *unix.Stat_t) (replaced bool) {
	if file == nil {
		now, err := dir.Stat(name)
		if err != nil {
			return false
		}
		*st = now
	}
	replaced = file == nil || st.Size != 0
	var err error
	if replaced {
		err = dir.MoveAside(name, s.Now())
	} else {
		err = unix.Fchmod(int(file.Fd()), folder.SharedMode)
	}
	if err != nil {
		return false
	}
	dir.Repairs = append(dir.Repairs, fmt.Sprintf("%s of %s could not be used as a lock (mode %07o): repaired",
		dir.Join(name), system.DescribeUser(st.Uid), st.Mode))
	return replaced
}

// repairModes has root write a state file again that belongs to another user and has
// a mode by which others can't use it. The content has been checked by then, so that
// no other file of a user becomes public.
func (t *transaction) repairModes() {
	for _, file := range stateFiles {
		st, err := t.dir.Stat(file.String())
		if err != nil || !t.access.writable || !narrowed(&st) {
			continue
		}
		t.files.Warn("%s of %s had mode %04o, by which others cannot use it: repaired",
			t.dir.Join(file.String()), system.DescribeUser(st.Uid), st.Mode&0o7777)
		t.onDisk[file] = nil // so that it is written
	}
}

// narrowed says that a user removed other users' access to a file. Files of root are
// left unchanged.
func narrowed(st *unix.Stat_t) bool {
	return st.Mode&folder.SharedMode != folder.SharedMode && st.Uid != uint32(os.Geteuid()) && st.Uid != 0
}
