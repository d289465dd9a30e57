package folder

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked is wrapped when another process holds a lock.
var ErrLocked = errors.New("another process holds the lock")

// lockPause is the time between two attempts to take a lock.
const lockPause = 10 * time.Millisecond

// Lock takes the exclusive flock(2) on a file of the folder, which is created if it is
// missing, and waits for it at most for a time. Closing the file releases it. It is for
// folders that only this user can write: see CheckPrivate.
func (d *Folder) Lock(name string, within time.Duration) (*os.File, error) {
	return d.lock(name, unix.O_RDWR, unix.LOCK_EX, within)
}

// Hold is Lock until the folder is closed.
func (d *Folder) Hold(name string, within time.Duration) (err error) {
	d.held, err = d.Lock(name, within)
	return err
}

// LockShared is Lock, and several may hold it at a time while none holds it exclusively.
func (d *Folder) LockShared(name string, within time.Duration) (*os.File, error) {
	return d.lock(name, unix.O_RDONLY, unix.LOCK_SH, within)
}

func (d *Folder) lock(name string, access, how int, within time.Duration) (*os.File, error) {
	fd, err := unix.Openat(d.fd, name, access|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: d.Join(name), Err: err}
	}
	file := os.NewFile(uintptr(fd), d.Join(name))
	for begun := time.Now(); ; time.Sleep(lockPause) {
		err := unix.Flock(fd, how|unix.LOCK_NB)
		busy := errors.Is(err, unix.EWOULDBLOCK)
		switch {
		case err == nil:
			return file, nil
		case errors.Is(err, unix.EINTR), busy && time.Since(begun) < within:
			continue
		case busy:
			err = ErrLocked
		}
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
	}
}
