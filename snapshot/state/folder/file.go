package folder

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const SharedMode = 0o666 // of files that all users of the host may write

// OpenFile opens a regular file with one link and at most limit bytes, without blocking on a FIFO.
func (d *Folder) OpenFile(name string, limit int64) (*os.File, unix.Stat_t, error) {
	return d.openFile(name, func(st *unix.Stat_t) string { return suspicious(st, limit) })
}

// OpenLock is OpenFile for a lock. In root's folder its size and links don't matter, as users may write root's locks.
func (d *Folder) OpenLock(name string, limit int64) (*os.File, unix.Stat_t, error) {
	return d.openFile(name, func(st *unix.Stat_t) string {
		if IsLock(st) && d.CheckPrivate() == nil {
			return ""
		}
		return suspicious(st, limit)
	})
}

// IsLock says whether a file is root's or ours, and all users may lock it.
func IsLock(st *unix.Stat_t) bool {
	return st.Mode&(unix.S_IFMT|0o7777) == unix.S_IFREG|SharedMode && (st.Uid == 0 || int(st.Uid) == os.Geteuid())
}

func (d *Folder) openFile(name string, check func(*unix.Stat_t) string) (file *os.File, st unix.Stat_t, err error) {
	fd, err := d.openAt(name, unix.O_RDONLY|unix.O_NONBLOCK)
	switch {
	case errors.Is(err, ErrTampered):
		return nil, st, err
	case errors.Is(err, unix.ELOOP):
		return nil, st, d.unsafe(name, "is a symbolic link")
	case errors.Is(err, unix.ENXIO):
		return nil, st, d.unsafe(name, "is a socket")
	case errors.Is(err, unix.EAGAIN):
		return nil, st, d.unsafe(name, "is held by a lease of its owner (fcntl(2))")
	case errors.Is(err, unix.EACCES):
		return nil, st, fmt.Errorf("%s cannot be read by uid %d: its owner or root has to `chmod a+rw` it: %w",
			d.Join(name), os.Geteuid(), err)
	case err != nil:
		return nil, st, d.pathError("open", name, err)
	}
	if err = d.pathError("stat", name, unix.Fstat(fd, &st)); err == nil {
		if why := check(&st); why != "" {
			err = d.unsafe(name, why)
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, st, err
	}
	return os.NewFile(uintptr(fd), d.Join(name)), st, nil
}

// openAt follows no links. See NoMounts.
func (d *Folder) openAt(name string, flags int) (int, error) {
	flags |= unix.O_NOFOLLOW | unix.O_CLOEXEC
	if d.NoMounts {
		fd, err := unix.Openat2(d.fd, name, &unix.OpenHow{Flags: uint64(flags), Resolve: unix.RESOLVE_NO_XDEV})
		switch {
		case errors.Is(err, unix.EXDEV):
			return -1, fmt.Errorf("%w: a file system is mounted at %s", ErrTampered, d.Join(name))
		case !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM): // Linux before 5.6; old engines' filters
			return fd, err
		}
	}
	return unix.Openat(d.fd, name, flags, 0)
}

// suspicious says why genv can't have made a file, or "".
func suspicious(st *unix.Stat_t, limit int64) string {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return "is not a regular file"
	case st.Nlink > 1:
		return fmt.Sprintf("has %d hard links", st.Nlink)
	case st.Size > limit:
		return fmt.Sprintf("is larger than %d MiB", limit>>20)
	}
	return ""
}

func (d *Folder) unsafe(name, why string) error {
	return fmt.Errorf("%w: %s %s, which genv never makes: it was not read; find out who put it there and remove it",
		ErrUnsafe, d.Join(name), why)
}

// Read returns the content of a file of at most limit bytes.
func (d *Folder) Read(name string, limit int64) ([]byte, unix.Stat_t, error) {
	file, st, err := d.OpenFile(name, limit)
	if err != nil {
		return nil, st, err
	}
	defer file.Close()
	data := bytes.NewBuffer(make([]byte, 0, st.Size+bytes.MinRead))
	if _, err = data.ReadFrom(io.LimitReader(file, limit+1)); int64(data.Len()) > limit {
		err = d.unsafe(name, "grows while it is read")
	}
	return data.Bytes(), st, err
}

// ReadJSON says whether it could decode the file into v.
func (d *Folder) ReadJSON(name string, limit int64, v any) bool {
	data, _, err := d.Read(name, limit)
	return err == nil && json.Unmarshal(data, v) == nil
}

// Stat follows no links.
func (d *Folder) Stat(name string) (st unix.Stat_t, err error) {
	fd, err := d.openAt(name, unix.O_PATH)
	if err != nil {
		return st, err
	}
	defer unix.Close(fd)
	return st, unix.Fstat(fd, &st)
}

// StillNamed says whether a name still means the file with that status.
func (d *Folder) StillNamed(name string, st *unix.Stat_t) bool {
	now, err := d.Stat(name)
	return err == nil && now.Ino == st.Ino && now.Dev == st.Dev
}

// Give transfers our file to another user.
func (d *Folder) Give(name string, uid uint32) error {
	file, st, err := d.OpenFile(name, 1<<62)
	if err != nil {
		return err
	}
	defer file.Close()
	if int(st.Uid) != os.Geteuid() { // a user replaced it
		return d.unsafe(name, fmt.Sprintf("belongs to uid %d", st.Uid))
	}
	return file.Chown(int(uid), -1)
}

// Ensure creates a missing file, empty. The mode precedes the name, so that no user sees a narrower one.
func (d *Folder) Ensure(name string, mode uint32) error {
	if _, err := d.Stat(name); err == nil {
		return nil
	}
	fd, err := unix.Openat(d.fd, ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, mode)
	if err != nil { // a file system without O_TMPFILE
		return Ignore(d.create(name, nil, mode, false), unix.EEXIST)
	}
	defer unix.Close(fd)
	if err := unix.Fchmod(fd, mode); err != nil {
		return d.pathError("set the mode of", name, err)
	}
	self := "/proc/self/fd/" + strconv.Itoa(fd)
	err = unix.Linkat(unix.AT_FDCWD, self, d.fd, name, unix.AT_SYMLINK_FOLLOW)
	return d.pathError("create", name, Ignore(err, unix.EEXIST))
}

// ErrLocked means that another process holds a lock.
var ErrLocked = errors.New("another process has the lock")

// Lock takes an exclusive flock(2) on a file, created if missing, until it is closed. The folder must pass
// CheckPrivate.
func (d *Folder) Lock(name string, within time.Duration) (*os.File, error) {
	return d.lock(name, unix.O_RDWR, unix.LOCK_EX, within)
}

// Hold is Lock until the folder is closed.
func (d *Folder) Hold(name string, within time.Duration) (err error) {
	d.held, err = d.Lock(name, within)
	return err
}

// LockWhole makes systemd-tmpfiles skip the folder until it is closed. It stops no user. Another process's lock does
// the same.
func (d *Folder) LockWhole() { _ = unix.Flock(d.fd, unix.LOCK_SH|unix.LOCK_NB) }

// LockShared is Lock with a shared flock(2).
func (d *Folder) LockShared(name string, within time.Duration) (*os.File, error) {
	return d.lock(name, unix.O_RDONLY, unix.LOCK_SH, within)
}

func (d *Folder) lock(name string, access, how int, within time.Duration) (*os.File, error) {
	fd, err := unix.Openat(d.fd, name, access|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: d.Join(name), Err: err}
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	file := os.NewFile(uintptr(fd), d.Join(name))
	if err := Flock(ctx, file, how); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// Flock polls for a flock(2) until ctx ends (ErrLocked), more and more slowly: a blocking call occupies a thread.
func Flock(ctx context.Context, file *os.File, how int) error {
	for begun := time.Now(); ; {
		err := unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case !errors.Is(err, unix.EWOULDBLOCK):
			return fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		select {
		case <-time.After(min(max(time.Since(begun)/10_000, 2*time.Millisecond), 100*time.Millisecond)):
		case <-ctx.Done():
			return fmt.Errorf("lock %s: %w", file.Name(), ErrLocked)
		}
	}
}

// ReadRegular reads a regular file of at most limit bytes, without blocking on a FIFO.
func ReadRegular(path string, limit int64) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file", path)
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return data, err
}

const (
	maxCAFile   = 4 << 20 // bytes: more than a system's authorities need
	maxPassword = 1024    // bytes
)

// ReadAuthorities reads a file of PEM certificates.
func ReadAuthorities(file string) (*x509.CertPool, error) {
	data, err := ReadRegular(file, maxCAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s has no certificate (PEM)", file)
	}
	return pool, nil
}

// ReadPassword reads a one-line file of root or this account, unreadable for others and not writable for its group.
func ReadPassword(path string) (string, error) {
	var file unix.Stat_t
	data, err := ReadRegular(path, maxPassword)
	if err == nil {
		err = unix.Stat(path, &file)
	}
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(data), "\r\n")
	switch mode := file.Mode & 0o777; {
	case file.Uid != 0 && int(file.Uid) != os.Geteuid():
		err = errors.New("it belongs to another user; chown it to root or to the account that runs this")
	case mode&0o027 != 0:
		err = fmt.Errorf("its mode is %#o, so that others may read or change it; chmod it to 0600 or 0640", mode)
	case password == "" || strings.ContainsAny(password, "\r\n"):
		err = errors.New("write one line into it: the password")
	default:
		return password, nil
	}
	return "", fmt.Errorf("%s: %w", path, err)
}

// Stamp changes when a file, its mode or its existence changes. It follows links.
func Stamp(paths ...string) string {
	var b strings.Builder
	for _, path := range paths {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			fmt.Fprintln(&b, err)
		} else {
			fmt.Fprintln(&b, st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
		}
	}
	return b.String()
}
