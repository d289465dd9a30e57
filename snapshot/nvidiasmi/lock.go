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

// lock holds a lock file while nvidia-smi runs. The program inherits the
// descriptor (flock(2) is of the open file), so one that hangs in the kernel
// keeps the lock after the genv that started it was killed.
type lock struct{ file *os.File }

// The files of a lock are the caller's alone.
const (
	lockDirMode  = 0o700
	lockFileMode = 0o600
)

// acquire takes the lock, and waits for it until shortly before the end of ctx.
// The error is ErrHung, or the cause of ctx. If no lock file can be made safely,
// the program runs without a lock, which is nil.
func acquire(ctx context.Context, path string) (*lock, error) {
	if path == "" || !ownFolder(filepath.Dir(path)) {
		return nil, nil
	}
	const shortest, longest = time.Millisecond, 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience(ctx))
	defer cancel()
	began := time.Now()
	for pause := shortest; ; pause = min(2*pause, longest) {
		l, holder, err := tryLock(path)
		if l != nil || err != nil {
			return l, nil // after an error without a lock
		}
		if holder.overdue() && time.Since(began) >= killTime {
			return nil, holder.hung()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return nil, holder.hung()
			}
			return nil, context.Cause(ctx)
		}
	}
}

// patience is how long to wait for the lock. It leaves a tenth of the time until
// the deadline, so that the caller still gets ErrHung and not just a timeout.
func patience(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return DefaultTimeout
	}
	return time.Until(deadline) / 10 * 9
}

// ownFolder makes a folder that only we can use, and says whether it is one.
func ownFolder(dir string) bool {
	if os.MkdirAll(filepath.Dir(dir), 0o755) != nil {
		return false
	}
	_ = os.Mkdir(dir, lockDirMode) // the result is checked below
	var st unix.Stat_t
	err := unix.Lstat(dir, &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == os.Geteuid() && st.Mode&0o022 == 0
}

// tryLock takes the lock unless another process holds it; then it returns what is
// known of that process. The file is never removed: where /run is on a disk, to
// create and remove one takes as long as to run a program.
func tryLock(path string) (*lock, holder, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, lockFileMode)
	if err != nil {
		return nil, holder{}, err
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		l := &lock{file}
		l.note(0, 0)
		return l, holder{}, nil
	}
	h := readHolder(file)
	_ = file.Close() // it was only read
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = nil
	}
	return nil, h, err
}

// begun notes which process runs, for those who wait.
func (l *lock) begun(pid int) {
	if l != nil {
		l.note(pid, time.Now().Unix())
	}
}

// note writes over the note of before, which is as long.
func (l *lock) note(pid int, since int64) {
	_, _ = l.file.WriteAt(fmt.Appendf(nil, "%10d %20d\n", pid, since), 0) // it only makes ErrHung say more
}

// release unlocks the file after the program has ended by itself, even if a child
// of the program still has the descriptor.
func (l *lock) release() {
	if l == nil {
		return
	}
	_ = unix.Flock(int(l.file.Fd()), unix.LOCK_UN)
	_ = l.file.Close()
}

// abandon closes only our descriptor: the lock is held for as long as the program
// or one of its children has it.
func (l *lock) abandon() {
	if l != nil {
		_ = l.file.Close()
	}
}

// holder is what a lock file says of the program that runs.
type holder struct {
	pid   int
	since time.Time
}

func readHolder(file *os.File) (h holder) {
	text := make([]byte, 64)
	n, _ := file.ReadAt(text, 0) // after an error there is nothing to parse
	var since int64
	if _, err := fmt.Sscan(string(text[:n]), &h.pid, &since); err != nil || h.pid <= 0 {
		return holder{}
	}
	h.since = time.Unix(since, 0)
	return h
}

// overdue says that the program runs for longer than any caller waits for it.
func (h holder) overdue() bool { return h.pid != 0 && time.Since(h.since) > DefaultTimeout }

func (h holder) hung() error {
	if h.pid == 0 {
		return fmt.Errorf("nvidia-smi already runs and does not return: %w", ErrHung)
	}
	return fmt.Errorf("nvidia-smi already runs since %s as process %d and does not return: %w", h.since.Format(time.RFC3339), h.pid, ErrHung)
}
