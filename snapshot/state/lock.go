package state

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile guards every read-modify-write, in 1.4.3 too. It is never replaced:
// who holds the old file would no longer exclude who opens the new one.
const lockFile = "genv.lock"

// locked opens the folder and runs f under the lock.
func (s *Store) locked(ctx context.Context, f func(*folder) error) error {
	return s.lockedWithin(ctx, s.wait, f)
}

// lockedWithin is locked for who waits less.
func (s *Store) lockedWithin(ctx context.Context, wait time.Duration, f func(*folder) error) error {
	dir, err := s.open()
	if err != nil {
		return err
	}
	defer dir.close()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	lock, err := s.lock(ctx, dir, lockFile)
	if err != nil {
		return err
	}
	defer unlock(lock)
	return f(dir)
}

// lock takes the exclusive flock on a file of the folder, which is made where
// it is missing, and waits for it until ctx ends.
func (s *Store) lock(ctx context.Context, dir *folder, name string) (*os.File, error) {
	for ctx.Err() == nil {
		if err := dir.ensure(name); err != nil {
			return nil, err
		}
		file, st, err := dir.open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since
		}
		if errors.Is(err, ErrUnsafe) && s.mayRepair() && s.repairLock(dir, name, nil, &st) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if narrowed(&st) && s.mayRepair() && s.repairLock(dir, name, file, &st) {
			_ = file.Close()
			continue
		}
		if err := s.flock(ctx, file, &st); err != nil {
			_ = file.Close()
			return nil, err
		}
		if dir.stillNamed(name, &st) {
			return file, nil
		}
		unlock(file) // someone removed the file while we waited for it
	}
	return nil, &BusyError{Path: dir.join(name), Cause: ctx.Err()}
}

// flock polls, since a blocking flock(2) cannot be given a deadline without a
// thread that may stay behind.
func (s *Store) flock(ctx context.Context, file *os.File, st *unix.Stat_t) error {
	begun := time.Now()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		if !sleep(ctx, pauseAfter(time.Since(begun))) {
			return &BusyError{Path: file.Name(), Waited: time.Since(begun), Holder: holderOf(s.proc, st), Cause: ctx.Err()}
		}
	}
}

// pauseAfter is how long to wait before the next try: short for some seconds,
// since the lock is mostly held for milliseconds and who tries less often gets
// it less often; then longer, so that a job that waits for hours costs nothing.
func pauseAfter(waited time.Duration) time.Duration {
	return min(max(waited/10_000, 2*time.Millisecond), 100*time.Millisecond)
}

// unlock gives the lock back at once, even if a child that is just being
// started still has the descriptor.
func unlock(file *os.File) {
	_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
	_ = file.Close()
}

// stillNamed says whether a name of the folder is still that very file.
func (d *folder) stillNamed(name string, st *unix.Stat_t) bool {
	var now unix.Stat_t
	err := unix.Fstatat(d.fd, name, &now, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && now.Ino == st.Ino && now.Dev == st.Dev
}
