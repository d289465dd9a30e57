package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxFileSize bounds a state file, in bytes. 10,000 environments take about half.
const maxFileSize = 8 << 20

// sharedMode is the mode of every file that each user of the host may write.
const sharedMode = 0o666

// open opens an existing file of the folder, and checks that it is a regular file
// with a single name and at most limit bytes. O_NONBLOCK is for a FIFO, which
// would block.
func (d *folder) open(name string, limit int64) (*os.File, unix.Stat_t, error) {
	var st unix.Stat_t
	fd, err := unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, st, d.unsafe(name, "is a symbolic link")
	case errors.Is(err, unix.ENXIO):
		return nil, st, d.unsafe(name, "is a socket")
	case errors.Is(err, unix.EACCES):
		return nil, st, fmt.Errorf("%s cannot be read by uid %d: its owner or root has to `chmod a+rw` it: %w",
			d.join(name), os.Geteuid(), err)
	case err != nil:
		return nil, st, &fs.PathError{Op: "open", Path: d.join(name), Err: err}
	}
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return nil, st, &fs.PathError{Op: "stat", Path: d.join(name), Err: err}
	}
	if why := suspicious(&st, limit); why != "" {
		_ = unix.Close(fd)
		return nil, st, d.unsafe(name, why)
	}
	return os.NewFile(uintptr(fd), d.join(name)), st, nil
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

func (d *folder) unsafe(name, why string) error {
	return fmt.Errorf("%w: %s %s, which genv never makes: it was not read; find out who put it there and remove it",
		ErrUnsafe, d.join(name), why)
}

// read returns the content of a file, and never more than limit bytes.
func (d *folder) read(name string, limit int64) ([]byte, unix.Stat_t, error) {
	f, st, err := d.open(name, limit)
	if err != nil {
		return nil, st, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = d.unsafe(name, "grows while it is read")
	}
	return data, st, err
}

// readJSON decodes a file into v, and says whether that succeeded.
func (d *folder) readJSON(name string, limit int64, v any) bool {
	data, _, err := d.read(name, limit)
	return err == nil && json.Unmarshal(data, v) == nil
}

// stat returns the status of a file of the folder, following no link.
func (d *folder) stat(name string) (st unix.Stat_t, err error) {
	err = unix.Fstatat(d.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return st, err
}

// ensure creates an empty file for all users if there is none. The file gets its
// mode before its name, so that no other user ever finds it with a narrower mode.
func (d *folder) ensure(name string) error {
	if unix.Faccessat(d.fd, name, unix.F_OK, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return nil
	}
	fd, err := unix.Openat(d.fd, ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, sharedMode)
	if err != nil { // a file system without O_TMPFILE
		return d.ensureNamed(name)
	}
	defer unix.Close(fd)
	if err := unix.Fchmod(fd, sharedMode); err != nil {
		return &fs.PathError{Op: "set the mode of", Path: d.join(name), Err: err}
	}
	self := "/proc/self/fd/" + strconv.Itoa(fd)
	err = unix.Linkat(unix.AT_FDCWD, self, d.fd, name, unix.AT_SYMLINK_FOLLOW)
	if ignore(err, unix.EEXIST) != nil {
		return &fs.PathError{Op: "create", Path: d.join(name), Err: err}
	}
	return nil
}

func (d *folder) ensureNamed(name string) error {
	fd, err := unix.Openat(d.fd, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, sharedMode)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "create", Path: d.join(name), Err: err}
	}
	defer unix.Close(fd)
	return unix.Fchmod(fd, sharedMode)
}
