package disk

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// Publish writes the copy of root's state files for 1.4.3 again, if it isn't what it should be. That the folder was
// replaced is an error, after it was mended.
func (s *Store) Publish() error {
	dir, owner, err := s.openOwned()
	if owner == nil || err != nil {
		return err
	}
	defer dir.Close()
	lock, err := dir.Lock(lockFile, s.LockTimeout)
	if err != nil {
		return err
	}
	defer unlock(lock)
	var contents state.Contents
	for _, file := range stateFiles {
		if contents[file], _, err = dir.Read(file.String(), maxFileSize); folder.Ignore(err, unix.ENOENT) != nil {
			return err
		}
	}
	if contents[state.Envs] == nil {
		return stateDir{dir, true}.lost(state.Envs)
	}
	return s.publish(contents, false)
}

// publish writes the copy into the state folder, which only root may write then. All may lock the lock files, since
// 1.4.3 only reads with the lock. The caller holds the lock of root's files. A folder that was replaced is an error in
// the end.
func (s *Store) publish(contents state.Contents, durable bool) (err error) {
	dir, err := s.openShared()
	if err != nil {
		return err
	}
	defer dir.Close()
	st, _ := dir.Status()
	if owner, unknown := s.Owner(); unknown == nil && owner != nil && !sealed(&st) {
		defer func() {
			err = cmp.Or(err, fmt.Errorf("%w: the folder %s was removed or replaced; what was found there is of %s"+
				" with mode %04o, and is root's again; root goes by its own state",
				errReplaced, dir.Path, system.DescribeUser(st.Uid), st.Mode&0o7777))
		}()
	}
	if err := seal(dir); err != nil {
		return err
	}
	s.step("sealed")
	if err := s.ownLock(dir, lockFile); err != nil {
		return err
	}
	if err := s.ownLocks(dir, contents[state.Devices]); err != nil {
		return err
	}
	for _, file := range stateFiles {
		if err := s.publishFile(dir, file.String(), contents[file], durable); err != nil {
			return err
		}
		s.step("published " + file.String())
	}
	_ = dir.Remove(answersFile) // root's folder has it
	return nil
}

func (s *Store) publishFile(dir *folder.Folder, name string, content []byte, durable bool) error {
	if content == nil {
		return dir.Remove(name)
	}
	old, st, err := dir.Read(name, maxFileSize)
	if err == nil && int(st.Uid) == os.Geteuid() && st.Mode&0o777 == ownedMode && bytes.Equal(old, content) {
		return nil
	}
	if st, err := dir.Stat(name); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := dir.RenameCorrupt(name, s.Now()); err != nil {
			return err
		}
	}
	return dir.Put(name, content, ownedMode, durable)
}

func seal(dir *folder.Folder) error {
	st, err := dir.Status()
	if err != nil || sealed(&st) {
		return err
	}
	return dir.Own(0o755)
}

func sealed(st *unix.Stat_t) bool { return int(st.Uid) == os.Geteuid() && st.Mode&0o7777 == 0o755 }

// ownLocks makes the folder of the devices' locks root's, with a file for each that every user may lock, and none can
// replace. What isn't a folder is moved away. dir is sealed.
func (s *Store) ownLocks(dir *folder.Folder, devices []byte) error {
	locks, err := dir.SharedSub(locksName)
	if errors.Is(err, folder.ErrUnsafe) {
		if err := dir.RenameCorrupt(locksName, s.Now()); err != nil {
			return err
		}
		locks, err = dir.SharedSub(locksName)
	}
	if err != nil {
		return err
	}
	defer locks.Close()
	var files state.Files
	if devices != nil {
		err = files.Decode(state.Devices, devices)
	}
	err = errors.Join(err, seal(locks))
	for i := range files.Devices {
		if err == nil {
			err = s.ownLock(locks, LockOf(files.Devices[i].Index))
		}
	}
	return err
}

// ownLock makes a lock file root's, which every user may lock. It stays the same file, since a user may hold it, unless
// it can't be locked, or has content that not all may read: a user may have moved it here.
func (s *Store) ownLock(dir *folder.Folder, name string) error {
	if err := dir.Ensure(name, folder.SharedMode); err != nil {
		return err
	}
	file, st, err := dir.OpenLock(name, maxFileSize)
	private := st.Size != 0 && st.Mode&folder.SharedMode != folder.SharedMode
	if err == nil {
		defer file.Close()
	}
	if err != nil || private {
		if err := dir.RenameCorrupt(name, s.Now()); err != nil {
			return err
		}
		return dir.Ensure(name, folder.SharedMode)
	}
	if folder.IsLock(&st) {
		return nil
	}
	if err := unix.Fchown(int(file.Fd()), os.Geteuid(), os.Getegid()); err != nil {
		return &os.PathError{Op: "chown", Path: file.Name(), Err: err}
	}
	return unix.Fchmod(int(file.Fd()), folder.SharedMode)
}
