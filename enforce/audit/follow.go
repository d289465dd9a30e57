package audit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Follower reads a log that grows: first its rotated files and itself, as Scan does, and
// then what is appended. It misses no record when the log is rotated, and reads a line
// only when it is complete. Close it.
type Follower struct {
	Path string
	file *os.File // nil while the log does not exist
	at   int64    // the beginning of the first line of file that was not read
	line int      // its number, less one
}

// NewFollower follows the log with a path, which may not exist yet.
func NewFollower(path string) *Follower { return &Follower{Path: path} }

// Close closes the file that is read.
func (f *Follower) Close() {
	if f.file != nil {
		_ = f.file.Close() // nothing was written
		f.file = nil
	}
}

// Next reads the records that are new since the last call.
func (f *Follower) Next(each func(*Record)) (damage Damage, err error) {
	if f.file == nil {
		if err := f.openOldest(nil); err != nil || f.file == nil {
			return damage, err
		}
	}
	for {
		if _, err := f.read(&damage, each, false); err != nil {
			return damage, err
		}
		rotated, err := f.rotated()
		if err != nil || !rotated {
			return damage, err
		}
		all, err := f.read(&damage, each, true) // what was appended before it was renamed
		if err != nil || !all {
			return damage, err
		}
		before := f.file
		if err := f.advance(); err != nil || f.file == before {
			return damage, err // the next file comes with the next record
		}
	}
}

// read reads the complete lines that are new, unless another program is writing. The last
// line of a file that is not written any more is complete.
func (f *Follower) read(damage *Damage, each func(*Record), final bool) (all bool, err error) {
	size, err := f.size()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if size < f.at { // truncated, by another program: what is there now is new
		f.at, f.line = 0, 0
	}
	lines := bufio.NewReader(io.NewSectionReader(f.file, f.at, size-f.at))
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return false, fmt.Errorf("%s: %w", f.Path, err)
		}
		if len(line) == 0 || err != nil && !final {
			return true, nil
		}
		f.at += int64(len(line))
		f.line++
		var record Record
		if json.Unmarshal(line, &record) != nil || record.Kind == "" {
			damage.add(f.Path, f.line)
		} else {
			each(&record)
		}
	}
}

// readLockTimeout is for how long a look waits for a program that writes.
const readLockTimeout = 200 * time.Millisecond

// size is up to where the file may be read: not into records that are being written, since
// they are taken back if the disk is full. The error is EWOULDBLOCK if another program goes
// on writing.
func (f *Follower) size() (int64, error) {
	err := unix.Flock(int(f.file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	for deadline := time.Now().Add(readLockTimeout); errors.Is(err, unix.EWOULDBLOCK); {
		if time.Now().After(deadline) {
			return 0, err
		}
		time.Sleep(5 * time.Millisecond)
		err = unix.Flock(int(f.file.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	}
	if err == nil {
		defer func() { _ = unix.Flock(int(f.file.Fd()), unix.LOCK_UN) }() // closing it would, too
	}
	info, err := f.file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// rotated says whether the file has lost its name to another one.
func (f *Follower) rotated() (bool, error) {
	is, err := f.has(0)
	if errors.Is(err, fs.ErrNotExist) { // the next one comes with the next record
		is, err = f.has(1)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return !is && err == nil, err
}

// has says whether the file has the name of a rotated file.
func (f *Follower) has(n int) (bool, error) {
	named, err := os.Lstat(rotated(f.Path, n))
	if err != nil {
		return false, err
	}
	opened, err := f.file.Stat()
	return err == nil && os.SameFile(opened, named), err
}

// advance opens the file after the one that was read, which was rotated once or more.
func (f *Follower) advance() error {
	for n := 1; ; n++ {
		switch is, err := f.has(n); {
		case errors.Is(err, fs.ErrNotExist): // it was removed, or has another name
			info, err := f.file.Stat()
			if err != nil {
				return err
			}
			return f.openOldest(info)
		case err != nil:
			return err
		case !is:
			continue
		}
		next, err := openRead(rotated(f.Path, n-1))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // they are being renamed; the next call finds it
		}
		if err != nil {
			return err
		}
		if still, err := f.has(n); err != nil || !still { // renamed meanwhile: next may not be the next one
			_ = next.Close() // nothing was written
			n = 0
			continue
		}
		f.begin(next)
		return nil
	}
}

// openOldest opens the oldest file of the log, or the oldest that is newer than another.
func (f *Follower) openOldest(than fs.FileInfo) error {
	oldest := -1
	for n := 0; ; n++ {
		info, err := os.Lstat(rotated(f.Path, n))
		if errors.Is(err, fs.ErrNotExist) {
			if n == 0 {
				continue // it is being rotated, or has not begun
			}
			break
		}
		if err != nil {
			return err
		}
		if than == nil || n == 0 || info.ModTime().After(than.ModTime()) {
			oldest = n
		}
	}
	if oldest < 0 {
		return nil
	}
	file, err := openRead(rotated(f.Path, oldest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f.begin(file)
	return nil
}

func (f *Follower) begin(file *os.File) {
	f.Close()
	f.file, f.at, f.line = file, 0, 0
}
