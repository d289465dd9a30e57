package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What a Log does unless told otherwise.
const (
	DefaultMaxBytes = 64 << 20
	DefaultKeep     = 9
)

// Log is an append-only file of records. Its methods may be called by several
// goroutines. The zero Log with a Path is ready for use.
type Log struct {
	Path string
	// MaxBytes is how long the file may become before it is rotated, 0 for
	// DefaultMaxBytes, and Keep how many old ones are kept, 0 for DefaultKeep:
	// Path.1 is the youngest of them.
	MaxBytes int64
	Keep     int

	// unlocked is for files whose reader could hold the lock against us.
	unlocked bool

	mu      sync.Mutex
	backlog []byte // encoded records that could not be written
}

// ErrNotWritten is wrapped when records are not on the disk. They are kept and
// written before the next ones.
var ErrNotWritten = errors.New("the audit log was not written")

// maxBacklog bounds what is kept in memory, in bytes.
const maxBacklog = 64 << 20

// Append writes records, and those that could not be written before, and
// returns when they are on the disk. With no records at all it finds out whether
// some could be.
func (l *Log) Append(records ...Record) error {
	lines, err := encode(records)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.backlog)+len(lines) <= maxBacklog {
		l.backlog = append(l.backlog, lines...)
	} else {
		err = fmt.Errorf("%d bytes are dropped: there are %d in memory", len(lines), len(l.backlog))
	}
	if err := errors.Join(err, l.locked(l.flush)); err != nil {
		return fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	return nil
}

// Reserve makes sure that as many bytes can be appended as records of what is
// about to be done will need, where the file system can promise that; and that
// nothing is waiting to be written.
func (l *Log) Reserve(bytes int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.locked(func(f *os.File, size int64) error {
		if waiting := int64(len(l.backlog)); waiting > 0 {
			if err := l.flush(f, size); err != nil {
				return err
			}
			size += waiting
		}
		err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, size, bytes)
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
			return nil // the file system can't promise anything
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	return nil
}

// locked opens the file, locks it, rotates it when it is full, and ends a line
// that a dying program left half-written.
func (l *Log) locked(do func(f *os.File, size int64) error) error {
	f, err := l.open()
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // synced before, if anything was written
	info, err := f.Stat()
	if err != nil {
		return err
	}
	size, err := endLine(f, info.Size())
	if err != nil {
		return err
	}
	return do(f, size)
}

// flush writes the backlog. A write that fails halfway is taken back, so that
// the file never holds a part of a line.
func (l *Log) flush(f *os.File, size int64) error {
	if len(l.backlog) == 0 {
		return nil
	}
	if _, err := f.Write(l.backlog); err != nil {
		return errors.Join(err, f.Truncate(size))
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Truncate(size)) // nobody knows what is on the disk
	}
	if size == 0 { // it may be new, and its name not yet on the disk
		if err := syncFolder(filepath.Dir(l.Path)); err != nil {
			return errors.Join(err, f.Truncate(size))
		}
	}
	l.backlog = nil
	return nil
}

// lockPatience is how long somebody else may hold the lock.
const lockPatience = 2 * time.Second

// open opens the file that bears the name now, under its lock.
func (l *Log) open() (*os.File, error) {
	for end := time.Now().Add(lockPatience); ; {
		f, err := openAppend(l.Path)
		if err != nil {
			return nil, err
		}
		fresh, err := l.lock(f)
		if err == nil && fresh {
			return f, nil
		}
		_ = f.Close() // nothing was written
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w", l.Path, err)
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("%s: somebody else has held its lock for %s", l.Path, lockPatience)
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// lock locks an opened file, and says whether it still bears the name and has
// room; one that is full is rotated away.
func (l *Log) lock(f *os.File) (fresh bool, err error) {
	if !l.unlocked {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return false, err
		}
	}
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(l.Path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(opened, named) {
		return false, nil // rotated meanwhile
	}
	if err != nil || opened.Size() < l.maxBytes() {
		return err == nil, err
	}
	return false, l.rotate()
}

func (l *Log) maxBytes() int64 {
	if l.MaxBytes > 0 {
		return l.MaxBytes
	}
	return DefaultMaxBytes
}

func (l *Log) keep() int {
	if l.Keep > 0 {
		return l.Keep
	}
	return DefaultKeep
}

// rotate renames the file, and the older ones before it.
func (l *Log) rotate() error {
	for n := l.keep() - 1; n >= 0; n-- {
		if err := os.Rename(rotated(l.Path, n), rotated(l.Path, n+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return syncFolder(filepath.Dir(l.Path))
}

func rotated(path string, n int) string {
	if n == 0 {
		return path
	}
	return fmt.Sprintf("%s.%d", path, n)
}

func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}

// openAppend opens a regular file of one name for appending, and creates it for
// its owner alone.
func openAppend(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := checkOurs(f); err != nil {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// checkOurs refuses what is no file of our own: whoever could write it or gave
// it a second name could change the record.
func checkOurs(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return errors.New("it is no regular file")
	case st.Nlink > 1:
		return errors.New("it has a second name (hard link)")
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("it belongs to uid %d: the record must be our own", st.Uid)
	}
	return nil
}

// endLine ends a last line that was cut, and returns the file's size then.
func endLine(f *os.File, size int64) (int64, error) {
	if size == 0 {
		return 0, nil
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, size-1); err != nil && !errors.Is(err, io.EOF) {
		return size, err
	}
	if last[0] == '\n' {
		return size, nil
	}
	_, err := f.WriteString("\n")
	return size + 1, err
}
