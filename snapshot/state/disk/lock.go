package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// lockFile guards every read-modify-write, in 1.4.3 too. It is never replaced: that would be another lock.
const lockFile = "genv.lock"

var errMoved = errors.New("the state files have another folder now")

func (s *Store) locked(ctx context.Context, timeout time.Duration, f func(stateDir) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		if err := s.lockedOnce(ctx, f); !errors.Is(err, errMoved) || ctx.Err() != nil {
			return err
		}
	}
}

func (s *Store) lockedOnce(ctx context.Context, f func(stateDir) error) error {
	dir, err := s.open()
	if err != nil {
		return err
	}
	defer dir.Close()
	if dir.owned && !dir.IsOurs() {
		return fmt.Errorf("%w: uid %d can't change %s", ErrOwned, os.Geteuid(), s.OwnedPath())
	}
	file, err := lock(ctx, dir.Folder, lockFile, dir.mode(ownedLockMode))
	if err != nil {
		return err
	}
	defer unlock(file)
	switch owner, err := s.Owner(); {
	case err != nil:
		return err
	case (owner != nil) != dir.owned:
		return errMoved
	}
	return f(dir)
}

// lock takes the exclusive flock on a file of the folder, which it creates, and waits until ctx ends.
func lock(ctx context.Context, dir *folder.Folder, name string, mode uint32) (*os.File, error) {
	for ctx.Err() == nil {
		if err := dir.Ensure(name, mode); err != nil {
			return nil, err
		}
		file, st, err := dir.OpenLock(name, maxFileSize)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since
		}
		if err != nil {
			return nil, err
		}
		if err := flock(ctx, file, &st); err != nil {
			_ = file.Close()
			return nil, err
		}
		if dir.StillNamed(name, &st) {
			return file, nil
		}
		unlock(file) // the file was removed while we waited for it
	}
	return nil, &BusyError{Path: dir.Join(name), Cause: ctx.Err()}
}

func flock(ctx context.Context, file *os.File, st *unix.Stat_t) error {
	begun := time.Now()
	err := folder.Flock(ctx, file, unix.LOCK_EX)
	if errors.Is(err, folder.ErrLocked) {
		holder := proc.LockHolderOf(system.RealProc, st)
		return &BusyError{Path: file.Name(), Waited: time.Since(begun), Holder: holder, Cause: ctx.Err()}
	}
	return err
}

// unlock releases the lock at once, even if a child that is just being started still has the descriptor.
func unlock(file *os.File) {
	_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
	_ = file.Close()
}

const locksName = "devices"

// LockOf is the name of the lock of a device.
func LockOf(index snapshot.DeviceIndex) string { return index.String() + ".lock" }

func (s *Store) openLocks() (locks, parent *folder.Folder, err error) {
	if parent, err = folder.Open(s.dir); err != nil {
		return nil, nil, err
	}
	if locks, err = parent.SharedSub(locksName); err != nil {
		parent.Close()
		return nil, nil, err
	}
	return locks, parent, nil
}

// LockDevices takes the locks of devices in index order, and waits until ctx ends, which is a BusyError. They are held
// until release is called or the process ends. flock(1) and the SDK of 1.4.3 use them too.
func (s *Store) LockDevices(ctx context.Context, indices []snapshot.DeviceIndex) (release func(), err error) {
	dir, parent, err := s.openLocks()
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	parent.LockWhole()
	var held []*os.File
	release = sync.OnceFunc(func() {
		for _, file := range held {
			unlock(file)
		}
		parent.Close()
	})
	for _, index := range slices.Compact(slices.Sorted(slices.Values(indices))) {
		if index < 0 {
			release()
			return nil, state.Refuse("GPU %d: an index can't be negative", index)
		}
		file, err := lock(ctx, dir, LockOf(index), folder.SharedMode)
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, file)
	}
	return release, nil
}
