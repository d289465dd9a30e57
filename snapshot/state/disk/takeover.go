package disk

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// TakeOver makes the state files root's: it reads them like Update, under everybody's lock, and writes them to root's
// folder. An interruption changes nothing. It needs root. move, if not nil, moves more under the lock. done is false if
// root owned them. warnings has a line each. Errors are Read's.
func (s *Store) TakeOver(ctx context.Context, move func(*state.Files) error) (done bool, warnings []string, err error) {
	if s.RootDir == "" {
		return false, nil, errors.New("without a folder for root's notes, the state can't be taken over")
	}
	_, err = s.transact(ctx, min(s.LockTimeout, readerTimeout), func(t *transaction) error {
		if t.dir.owned {
			return nil
		}
		uptime := s.System.Uptime()
		if !t.access.mayClean {
			return errors.New(t.access.warning)
		}
		if err := t.loadAndClean(ctx); err != nil {
			return err
		}
		if err := t.save(uptime); err != nil {
			return err
		}
		if err := t.moveToRoot(move); err != nil {
			if owner, unknown := s.Owner(); owner == nil && unknown == nil {
				err = errors.Join(err, unseal(t.dir.Folder))
			}
			return err
		}
		done, warnings = true, t.files.Warnings
		return nil
	})
	return done, warnings, err
}

// moveToRoot writes the note about the owner last: without it, the rest doesn't count.
func (t *transaction) moveToRoot(move func(*state.Files) error) error {
	dir, err := t.makeOwned()
	if err != nil {
		return err
	}
	defer dir.Close()
	own := &transaction{Store: t.Store, dir: stateDir{dir, true}, files: t.files, process: t.process}
	next, err := own.writeChanges()
	if err != nil {
		return err
	}
	own.writeAnswers()
	now, err := t.noteAbout(own.dir)
	if err != nil {
		return err
	}
	putSeen(dir, seenNote{now, t.seen})
	t.step("written")
	if move != nil {
		if err := move(&t.files); err != nil {
			return err
		}
	}
	if err := t.publish(next, true); folder.Ignore(err, errReplaced) != nil {
		return err
	}
	t.step("owning")
	owner := Ownership{Schema: OwnerSchema, StateDir: t.path(), Since: t.Now().UTC()}
	if err := dir.PutJSON(ownerFile, owner, ownedMode, true); err != nil {
		return err
	}
	t.step("owned")
	return nil
}

// makeOwned opens root's folder, without remains of an earlier takeover.
func (s *Store) makeOwned() (*folder.Folder, error) {
	makeRoot(s.RootDir)
	all, err := folder.OpenTrusted(s.RootDir)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	dir, err := all.PrivateSub(ownedName, 0o755)
	if err == nil {
		err = s.checkOther(dir)
	}
	for _, name := range []string{state.Envs.String(), state.Devices.String(), seenFile, answersFile} {
		if err == nil {
			err = dir.Remove(name)
		}
	}
	return dir.OrClose(err)
}

func (s *Store) checkOther(dir *folder.Folder) error {
	var owner Ownership
	if dir.ReadJSON(ownerFile, maxNote, &owner) && owner.StateDir != s.path() {
		return fmt.Errorf("%w: %s has the state of %s: give that back with GENV_TMPDIR=%s and `genv host handover`",
			folder.ErrUnsafe, dir.Path, owner.StateDir, owner.StateDir)
	}
	return nil
}

// HandOver reverses TakeOver: all users may write again. If interrupted, call it again. It needs root, and no running
// service.
func (s *Store) HandOver(ctx context.Context, move func(*state.Files) error) (done bool, err error) {
	_, err = s.transact(ctx, s.LockTimeout, func(t *transaction) error {
		if !t.dir.owned {
			return nil
		}
		if err := t.loadAndClean(ctx); err != nil {
			return err
		}
		done = true
		return t.moveBack(move)
	})
	if err != nil {
		return false, err
	}
	shared, err := folder.Open(s.dir)
	if err != nil {
		return done, err
	}
	defer shared.Close()
	return done, unseal(shared)
}

func (t *transaction) moveBack(move func(*state.Files) error) error {
	next, err := t.writeChanges()
	if err != nil {
		return err
	}
	if err := t.publish(next, true); folder.Ignore(err, errReplaced) != nil {
		return err
	}
	dir, err := t.openShared()
	if err != nil {
		return err
	}
	defer dir.Close()
	shared := &transaction{Store: t.Store, dir: stateDir{dir, false}, files: t.files, process: t.process}
	shared.writeAnswers()
	access := t.accessTo(shared.dir, true)
	defer access.root.Close()
	if access.writable {
		putSeen(access.root, seenNote{access.now, t.look(t.System.Uptime())})
	}
	if move != nil {
		err = move(&t.files)
	}
	if err != nil {
		return err
	}
	t.step("disowning")
	if err := errors.Join(t.dir.Remove(ownerFile), t.dir.Sync()); err != nil {
		return err
	}
	t.step("disowned")
	for _, file := range stateFiles {
		_ = t.dir.Remove(file.String()) // no longer read
	}
	return nil
}

// unseal makes the state folder and the copy writable again, but no other files that a user moved there.
func unseal(dir *folder.Folder) error {
	if st, err := dir.Status(); err != nil || st.Mode&0o002 != 0 {
		return err
	}
	for _, name := range []string{state.Envs.String(), state.Devices.String(), answersFile} {
		file, st, err := dir.OpenFile(name, maxFileSize)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, folder.ErrUnsafe): // not a file of the copy
			continue
		case err != nil:
			return err
		}
		if int(st.Uid) == os.Geteuid() && st.Mode&0o7777 == ownedMode {
			err = unix.Fchmod(int(file.Fd()), folder.SharedMode)
		}
		_ = file.Close()
		if err != nil {
			return &fs.PathError{Op: "chmod", Path: dir.Join(name), Err: err}
		}
	}
	if locks, err := dir.Sub(locksName); err == nil {
		defer locks.Close()
		if err := locks.Own(0o777); err != nil {
			return err
		}
	}
	return dir.Own(0o777)
}

// Publish mends the copy for 1.4.3. It fails if the folder was replaced.
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

// publish writes the copy, in a folder only for root. All may lock the lock files: 1.4.3 locks to read. The lock of
// root's files is held.
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
	_ = dir.Remove(answersFile) // it is in root's folder
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
	if st, err := dir.Status(); err != nil || sealed(&st) {
		return err
	}
	return dir.Own(0o755)
}

func sealed(st *unix.Stat_t) bool { return int(st.Uid) == os.Geteuid() && st.Mode&0o7777 == 0o755 }

// ownLocks makes the folder of device locks root's, with a file per device that all may lock and none can replace.
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

// ownLock makes a lock file root's. It stays the same file, as a user may hold it, unless a user may have moved it
// here: it can't be locked, or not all may read it.
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
