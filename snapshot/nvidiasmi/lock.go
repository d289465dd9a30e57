package nvidiasmi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lock is a locked file while nvidia-smi runs. The program inherits the descriptor, and flock(2) locks belong to the
// open file, so a program that hangs in the kernel keeps the lock after the genv that started it was killed.
type lock struct{ file *os.File }

// Only the caller can use the lock. In its folder, root also keeps what other users read.
const (
	lockDirMode  = 0o755
	lockFileMode = 0o600
)

// acquire takes the lock, and waits for it until shortly before ctx ends. The error is ErrHung, or the cause of ctx. If
// a lock file can't be created safely, the lock is nil and the program runs without it.
func acquire(ctx context.Context, path string) (*lock, error) {
	if path == "" || !ownFolder(filepath.Dir(path)) {
		return nil, nil
	}
	const shortest, longest = time.Millisecond, 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, lockTimeout(ctx))
	defer cancel()
	began := time.Now()
	for pause := shortest; ; pause = min(2*pause, longest) {
		l, holder, err := tryLock(path)
		if l != nil || err != nil {
			return l, nil // after an error without a lock
		}
		if holder.isHung() && time.Since(began) >= killTime {
			return nil, holder.hungError()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, holder.hungError()
			}
			return nil, context.Cause(ctx)
		}
	}
}

// lockTimeout is how long to wait for the lock: nine tenths of the time until the deadline,
// so that the caller gets ErrHung and not just a timeout.
func lockTimeout(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return DefaultTimeout
	}
	return time.Until(deadline) / 10 * 9
}

// ownFolder creates a folder that only we can write, and says whether it is such a folder.
func ownFolder(dir string) bool {
	if os.MkdirAll(filepath.Dir(dir), 0o755) != nil {
		return false
	}
	_ = os.Mkdir(dir, lockDirMode) // the result is checked below
	var st unix.Stat_t
	err := unix.Lstat(dir, &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == os.Geteuid() && st.Mode&0o022 == 0
}

// tryLock takes the lock, or returns what is known about the process that holds it. The file is never removed: if /run
// is on a disk, creating and removing a file takes as long as running a program.
func tryLock(path string) (*lock, lockHolder, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, lockFileMode)
	if err != nil {
		return nil, lockHolder{}, err
	}
	if err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
		l := &lock{file}
		l.note(0, 0)
		return l, lockHolder{}, nil
	}
	h := readLockHolder(file)
	_ = file.Close() // it was only read
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = nil
	}
	return nil, h, err
}

// note writes which process runs and since when (Unix time), for the error of those who
// wait. It overwrites the previous note, which has the same length.
func (l *lock) note(pid int, since int64) {
	if l == nil {
		return
	}
	_, _ = l.file.WriteAt(fmt.Appendf(nil, "%10d %20d\n", pid, since), 0) // it only makes ErrHung say more
}

// release closes our descriptor, and unlocks the file if the program has ended normally, even if a child still has it.
// Otherwise the file stays locked as long as the program or a child has it.
func (l *lock) release(ended bool) {
	if l == nil {
		return
	}
	if ended {
		_ = unix.Flock(int(l.file.Fd()), unix.LOCK_UN)
	}
	_ = l.file.Close()
}

// lockHolder is the content of a lock file: the program that runs.
type lockHolder struct {
	pid   int
	since time.Time
}

func readLockHolder(file *os.File) (h lockHolder) {
	text := make([]byte, 64)
	n, _ := file.ReadAt(text, 0) // after an error there is nothing to parse
	var since int64
	if _, err := fmt.Sscan(string(text[:n]), &h.pid, &since); err != nil || h.pid <= 0 {
		return lockHolder{}
	}
	h.since = time.Unix(since, 0)
	return h
}

// isHung says that the program has run for longer than any caller waits for it.
func (h lockHolder) isHung() bool { return h.pid != 0 && time.Since(h.since) > DefaultTimeout }

func (h lockHolder) hungError() error {
	if h.pid == 0 {
		return fmt.Errorf("nvidia-smi is already running and does not return: %w", ErrHung)
	}
	return fmt.Errorf("nvidia-smi has been running since %s as process %d and does not return: %w",
		h.since.Format(time.RFC3339), h.pid, ErrHung)
}
