// Package audit keeps the audit log: an append-only file of JSON lines, one Record each, of findings, decisions and
// actions.
//
//	log := audit.Log{Path: "/var/log/genv/audit.jsonl"}
//	err := log.Append(audit.Record{Time: now, Kind: audit.KindFinding, …})
//	entries, damage, err := audit.History(log.Path, audit.Filter{User: "bob"})
//
// Append returns when the records are on the disk. Records that could not be written, for example on a full disk, are
// kept in memory and written first the next time. A caller that must not act without a record calls Reserve first.
//
// A full file is rotated. Several programs, such as two controllers, may append to it.
//
// On a GPU host each user also has a log of what concerns that user, readable only for root and the user: see
// UserLogPath.
package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

const (
	defaultMaxBytes = 64 << 20
	DefaultKeep     = 9 // rotated files
)

// Log is an append-only file of records. It is safe for concurrent use, and only needs a Path.
type Log struct {
	Path     string
	MaxBytes int64 // the size at which the file is rotated; 0 for 64 MiB
	Keep     int   // how many rotated files are kept, of which Path.1 is the newest; 0 for DefaultKeep
	Readers  int   // the group that may read new files; 0 for none
	// Room is how many bytes stay allocated for later records: others may fill the disk.
	Room int64

	unlocked bool // the user who may read the file could hold the lock against us

	mu      sync.Mutex
	backlog []byte // encoded records that could not be written
}

// ErrNotWritten means that records are not on the disk. They are kept and written before the next ones.
var ErrNotWritten = errors.New("the record was not written")

const maxBacklog = 64 << 20 // bytes in memory

// Append writes records after the kept ones, and returns when they are on the disk.
func (l *Log) Append(records ...Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	lost := 0 // one record that is too large must not take others with it
	for i := range records {
		line, wrong := encode(&records[i])
		if err = errors.Join(err, wrong); wrong != nil || len(l.backlog)+len(line) > maxBacklog {
			lost++
			continue
		}
		l.backlog = append(l.backlog, line...)
	}
	if lost > 0 {
		err = errors.Join(err, fmt.Errorf("%d records are lost: %d bytes are waiting in memory already", lost,
			len(l.backlog)))
	}
	return notWritten(errors.Join(err, l.write(0)))
}

// Reserve makes sure that no record is waiting and, if the file system can, that so many bytes fit.
func (l *Log) Reserve(bytes int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return notWritten(l.write(bytes))
}

func notWritten(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNotWritten, err)
}

func (l *Log) write(reserve int64) error {
	f, size, err := l.open()
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // synced before, if anything was written
	if n := int64(len(l.backlog)); n > 0 {
		if err := folder.Allocate(f, size, n); err != nil {
			return err
		}
		if err := l.writeBacklog(f, size); err != nil {
			return errors.Join(err, f.Truncate(size)) // the file never holds a part of a line
		}
		size += n
	}
	for room := l.Room; room > reserve && folder.Allocate(f, size, room) != nil; {
		room /= 2
	}
	if reserve == 0 {
		return nil
	}
	return folder.Allocate(f, size, reserve)
}

func (l *Log) writeBacklog(f *os.File, size int64) error {
	_, err := f.Write(l.backlog)
	if err == nil {
		err = f.Sync()
	}
	if err == nil && size == 0 { // the file may be new, and its name not yet on the disk
		err = syncFolder(filepath.Dir(l.Path))
	}
	if err == nil {
		l.backlog = nil
	}
	return err
}

const lockTimeout = 2 * time.Second

// open ends a last line that a dead program cut off.
func (l *Log) open() (*os.File, int64, error) {
	for deadline := time.Now().Add(lockTimeout); ; {
		f, err := l.openAppend()
		if err != nil {
			return nil, 0, err
		}
		current, err := l.lock(f)
		if err == nil && current {
			var size int64
			if size, err = endLine(f); err == nil {
				return f, size, nil
			}
		}
		_ = f.Close() // nothing was written
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, 0, fmt.Errorf("%s: %w", l.Path, err)
		}
		if time.Now().After(deadline) {
			return nil, 0, fmt.Errorf("%s: another program has kept its lock for %s", l.Path, lockTimeout)
		}
		if err != nil {
			time.Sleep(time.Millisecond) // a signal may wait for it
		}
	}
}

// lock reports whether the locked file is still the current one. It rotates a full file.
func (l *Log) lock(f *os.File) (current bool, err error) {
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
	if err != nil || opened.Size() < cmp.Or(max(l.MaxBytes, 0), defaultMaxBytes) || !l.mayRotate() {
		return err == nil, err
	}
	return false, l.rotate()
}

// A full disk only has what stays allocated in the present file.
func (l *Log) mayRotate() bool {
	var st unix.Statfs_t
	_, err := os.Lstat(rotated(l.Path, cmp.Or(max(l.Keep, 0), DefaultKeep))) // which makes room
	return err == nil || unix.Statfs(filepath.Dir(l.Path), &st) != nil || int64(st.Bavail)*st.Bsize > l.Room
}

func (l *Log) rotate() error {
	for n := cmp.Or(max(l.Keep, 0), DefaultKeep) - 1; n >= 0; n-- {
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

func (l *Log) openAppend() (*os.File, error) {
	f, err := os.OpenFile(l.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := checkOwn(f); err != nil {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("%s: %w", l.Path, err)
	}
	if info, err := f.Stat(); l.Readers != 0 && err == nil && info.Size() == 0 && f.Chown(-1, l.Readers) == nil {
		_ = f.Chmod(0o640) // else it stays the owner's own
	}
	return f, nil
}

// checkOwn refuses a file that others could change, as its owner or by another name.
func checkOwn(f *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return errors.New("it is not a regular file")
	case st.Nlink > 1:
		return errors.New("it has a second name (hard link)")
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("it belongs to uid %d: the record must belong to the user who runs genv", st.Uid)
	}
	return nil
}

func endLine(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, info.Size()-1); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if last[0] == '\n' {
		return info.Size(), nil
	}
	_, err = f.WriteString("\n")
	return info.Size() + 1, err
}

// UserLogPath is the log of one user, beside the log of a host. It belongs to root; an access control list (acl(5))
// lets that user read it.
func UserLogPath(logPath string, uid snapshot.UID) string {
	return filepath.Join(filepath.Dir(logPath), "users", strconv.FormatUint(uint64(uid), 10)+".jsonl")
}

const (
	// A signal waits for the record.
	namesWithin  = 500 * time.Millisecond
	userMaxBytes = 1 << 20 // of a user's log: a few thousand lines
	userKeep     = 2
	hostRoom     = 1 << 20
)

// AppendHostLog writes records to the host's log, and those with a UID to that user's. It moves away a former user's
// log.
func AppendHostLog(path string, accounts nss.Passwd, records ...Record) error {
	if err := os.MkdirAll(filepath.Dir(filepath.Dir(path)), 0o755); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(UserLogPath(path, 0))} {
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			err = os.Chmod(dir, 0o755) // whatever the umask; the administrator may have given others to one that exists
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := (&Log{Path: path, Room: hostRoom}).Append(records...); err != nil {
		return err
	}
	byUser := make(map[snapshot.UID][]Record)
	for _, r := range records {
		if r.UID != nil {
			byUser[*r.UID] = append(byUser[*r.UID], r)
		}
	}
	var errs error
	ctx, cancel := context.WithTimeout(context.Background(), namesWithin)
	defer cancel()
	for uid, own := range byUser {
		if err := appendUserLog(UserLogPath(path, uid), uid, accounts.Names(ctx, uid), own); err != nil {
			errs = errors.Join(errs, fmt.Errorf("the history of uid %d: %w", uid, err))
		}
	}
	return errs
}

func appendUserLog(path string, uid snapshot.UID, names []string, records []Record) error {
	if err := folder.MoveFormer(path, names); err != nil {
		return err
	}
	log := Log{Path: path, MaxBytes: userMaxBytes, Keep: userKeep, unlocked: true}
	if err := log.Append(records...); err != nil {
		return err
	}
	return folder.AllowToRead(path, uint32(uid), names)
}
