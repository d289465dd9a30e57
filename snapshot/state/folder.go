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

// folder is an open folder. Files in it are opened relative to its descriptor, so that
// replacing the folder at its path has no effect.
type folder struct {
	fd      int
	path    string
	repairs []string // what root repaired, a line each
}

func (d *folder) close() { _ = unix.Close(d.fd) }

func (d *folder) join(name string) string { return filepath.Join(d.path, name) }

// openFolder opens the state folder, and creates it if it is missing. It follows a link
// in its place only if root or the caller made it.
func openFolder(path string) (*folder, error) {
	d, err := openDir(unix.AT_FDCWD, path, unix.O_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return openLink(path)
	case !errors.Is(err, fs.ErrNotExist):
		return d, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create the state folder: %w", err)
	}
	parent, err := openDir(unix.AT_FDCWD, filepath.Dir(path), 0)
	if err != nil {
		return nil, err
	}
	defer parent.close()
	return parent.subfolder(filepath.Base(path), path)
}

// openLink opens the target of a link in the state folder's place. It refuses a link
// that another user made, since every user may write /var/tmp. The owner and the
// target are read through one descriptor, so that they are of the same link.
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

// subfolder opens a folder in this one, and creates it with mode 0777 if it is missing.
// It is created under a temporary name and renamed, so that no other user ever finds
// it with the narrower mode that the umask gives it at first.
func (d *folder) subfolder(name, path string) (*folder, error) {
	sub, err := openDir(d.fd, name, unix.O_NOFOLLOW)
	if !errors.Is(err, fs.ErrNotExist) {
		return named(sub, path), unsafeDir(err, path)
	}
	temp := "." + name + "." + strconv.Itoa(os.Getpid()) + "." + strconv.FormatUint(rand.Uint64(), 36)
	if err := unix.Mkdirat(d.fd, temp, 0o777); err != nil {
		return nil, &fs.PathError{Op: "create the folder", Path: path, Err: err}
	}
	err = errors.Join(
		unix.Fchmodat(d.fd, temp, 0o777, 0),
		ignore(d.rename(temp, name), unix.EEXIST, unix.ENOTEMPTY),
	)
	_ = unix.Unlinkat(d.fd, temp, unix.AT_REMOVEDIR) // it is still there if another process was faster
	if err != nil {
		return nil, &fs.PathError{Op: "create the folder", Path: path, Err: err}
	}
	sub, err = openDir(d.fd, name, unix.O_NOFOLLOW)
	return named(sub, path), unsafeDir(err, path)
}

// rename renames a new folder, unless the name exists. NFS does not support
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

// unsafeDir is the error for a path at which there is something other than a folder.
func unsafeDir(err error, path string) error {
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%w: %s is not a folder: remove it", ErrUnsafe, path)
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

// FolderID identifies the state folder on this machine by its device and inode, as in
// "8:1/131": it is the same for all paths to the folder.
func (s *Store) FolderID() (string, error) {
	dir, err := openFolder(s.dir)
	if err != nil {
		return "", err
	}
	defer dir.close()
	var st unix.Stat_t
	if err := unix.Fstat(dir.fd, &st); err != nil {
		return "", fmt.Errorf("stat %s: %w", dir.path, err)
	}
	return fmt.Sprintf("%d:%d/%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino), nil
}
