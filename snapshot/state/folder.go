package state

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// folder is an open folder. Everything in it is opened relative to its
// descriptor, so that nobody can swap the folder in between.
type folder struct {
	fd       int
	path     string
	repaired []string // a line about each thing that root repaired
}

func (d *folder) close() { _ = unix.Close(d.fd) }

func (d *folder) join(name string) string { return filepath.Join(d.path, name) }

// openFolder opens the state folder, and makes it where it is missing. It
// follows a link in its place only if root or the caller made it.
func openFolder(path string) (*folder, error) {
	d, err := openDir(unix.AT_FDCWD, path, unix.O_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return openLink(path)
	case !errors.Is(err, fs.ErrNotExist):
		return d, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the state: %w", err)
	}
	parent, err := openDir(unix.AT_FDCWD, filepath.Dir(path), 0)
	if err != nil {
		return nil, err
	}
	defer parent.close()
	return parent.subfolder(filepath.Base(path), path)
}

// openLink opens the folder that a link in the folder's place leads to, and
// refuses a link that another user planted: /var/tmp is everyone's. The link is
// held while its owner is looked at and its target is read, so that nobody can
// put another in its place in between.
func openLink(path string) (*folder, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return nil, unsafeDir(unix.ENOTDIR, path)
	}
	if (st.Uid != 0 && int(st.Uid) != os.Geteuid()) || st.Nlink > 1 {
		return nil, fmt.Errorf("%w: %s is a link that uid %d made: remove it, or set GENV_TMPDIR", ErrUnsafe, path, st.Uid)
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", target)
	if err != nil {
		return nil, &fs.PathError{Op: "read the link", Path: path, Err: err}
	}
	to := string(target[:n])
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(path), to)
	}
	d, err := openDir(unix.AT_FDCWD, to, 0)
	return named(d, path), err
}

func openDir(at int, path string, flags int) (*folder, error) {
	fd, err := unix.Openat(at, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open the folder", Path: path, Err: err}
	}
	return &folder{fd: fd, path: path}, nil
}

// subfolder opens a folder in this one, made with mode 0777 where it is
// missing. It is made under another name and moved there, so that no other user
// ever meets it with the narrower mode that the umask gives it at first.
func (d *folder) subfolder(name, path string) (*folder, error) {
	sub, err := openDir(d.fd, name, unix.O_NOFOLLOW)
	if !errors.Is(err, fs.ErrNotExist) {
		return named(sub, path), unsafeDir(err, path)
	}
	temp := "." + name + "." + strconv.Itoa(os.Getpid()) + "." + strconv.FormatUint(rand.Uint64(), 36)
	if err := unix.Mkdirat(d.fd, temp, 0o777); err != nil {
		return nil, &fs.PathError{Op: "make the folder", Path: path, Err: err}
	}
	err = errors.Join(
		unix.Fchmodat(d.fd, temp, 0o777, 0),
		ignore(d.rename(temp, name), unix.EEXIST, unix.ENOTEMPTY),
	)
	_ = unix.Unlinkat(d.fd, temp, unix.AT_REMOVEDIR) // gone, unless another process was first
	if err != nil {
		return nil, &fs.PathError{Op: "make the folder", Path: path, Err: err}
	}
	sub, err = openDir(d.fd, name, unix.O_NOFOLLOW)
	return named(sub, path), unsafeDir(err, path)
}

// rename gives a new folder its name, unless there is one. NFS knows no
// RENAME_NOREPLACE; there an empty folder may be replaced.
func (d *folder) rename(temp, name string) error {
	err := unix.Renameat2(d.fd, temp, d.fd, name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) {
		err = unix.Renameat(d.fd, temp, d.fd, name)
	}
	return err
}

func named(d *folder, path string) *folder {
	if d != nil {
		d.path = path
	}
	return d
}

// unsafeDir says of a folder's place what stands there instead.
func unsafeDir(err error, path string) error {
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%w: %s is no folder: remove it", ErrUnsafe, path)
	}
	return err
}

func ignore(err error, harmless ...error) error {
	for _, h := range harmless {
		if errors.Is(err, h) {
			return nil
		}
	}
	return err
}
