// Package folder reads and writes files in a folder that every user may write. Nothing in it is trusted: links aren't
// followed, files are checked before they are read, and replaced as a whole.
//
//	d, err := folder.Open("/var/tmp/genv")
//	defer d.Close()
//	data, _, err := d.Read("envs.json", 8<<20)
//	err = d.Put("envs.json", data, folder.SharedMode, true)
package folder

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

// ErrUnsafe means that genv doesn't create such a file, or other users can change what must be trusted.
var ErrUnsafe = errors.New("unsafe state file")

// ErrTampered means that a user mounted a file system over or in the folder. It may never answer.
var ErrTampered = errors.New("tampering")

// Folder is an open folder. Replacing the one at its path doesn't affect it.
type Folder struct {
	Path     string
	NoMounts bool // refuse mounts in the folder with ErrTampered
	Spare    bool // after CheckPrivate: keep blocks for the next content of published files, see keepSpare
	fd       int
	held     *os.File // see Hold
}

// OrClose returns the folder or, after an error, closes it.
func (d *Folder) OrClose(err error) (*Folder, error) {
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// Close closes a folder, which may be nil, and ends Hold.
func (d *Folder) Close() {
	if d == nil {
		return
	}
	if d.held != nil {
		_ = d.held.Close()
	}
	_ = unix.Close(d.fd)
}

// Join returns the path of a file, for people.
func (d *Folder) Join(name string) string { return filepath.Join(d.Path, name) }

// pathError adds operation and file ("": the folder itself) to an error.
func (d *Folder) pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: d.Join(name), Err: err}
}

// Open opens or creates a folder for all users. It only follows a link of root or the caller.
func Open(path string) (*Folder, error) {
	path = filepath.Clean(path) // the kernel would follow a link before a trailing slash
	d, err := openDir(path, unix.O_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		return openLink(path)
	case !errors.Is(err, fs.ErrNotExist):
		return d, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("create the state folder: %w", err)
	}
	parent, err := OpenExisting(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	return parent.SharedSub(filepath.Base(path))
}

// OpenExisting opens a folder, and follows links in its path.
func OpenExisting(path string) (*Folder, error) { return openDir(path, 0) }

// openLink follows a link, unless another user made it: all users may write /var/tmp.
func openLink(path string) (*Folder, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	link := Folder{fd: fd, Path: path}
	defer link.Close()
	st, err := link.Status()
	switch {
	case err != nil:
		return nil, err
	case st.Mode&unix.S_IFMT != unix.S_IFLNK:
		return nil, unsafeDir(unix.ENOTDIR, path)
	case (st.Uid != 0 && int(st.Uid) != os.Geteuid()) || st.Nlink > 1:
		return nil, fmt.Errorf("%w: %s is a link that uid %d made: remove it, or set GENV_TMPDIR",
			ErrUnsafe, path, st.Uid)
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
	d, err := OpenExisting(to)
	if err == nil {
		d.Path = path
	}
	return d, err
}

func openDir(path string, flags int) (*Folder, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|flags, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open the folder", Path: path, Err: err}
	}
	return &Folder{fd: fd, Path: path}, nil
}

// Sub opens a subfolder without following links.
func (d *Folder) Sub(name string) (*Folder, error) {
	path := d.Join(name)
	fd, err := d.openAt(name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, unsafeDir(&fs.PathError{Op: "open the folder", Path: path, Err: err}, path)
	}
	return &Folder{fd: fd, Path: path, NoMounts: d.NoMounts}, nil
}

// SharedSub is Sub. It creates a missing folder, which has its mode (0777) before its name.
func (d *Folder) SharedSub(name string) (*Folder, error) {
	sub, err := d.Sub(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return sub, err
	}
	temp := "." + name + "." + strconv.Itoa(os.Getpid()) + "." + strconv.FormatUint(rand.Uint64(), 36)
	err = unix.Mkdirat(d.fd, temp, 0o777)
	if err == nil {
		err = errors.Join(
			unix.Fchmodat(d.fd, temp, 0o777, 0),
			Ignore(d.rename(temp, name), unix.EEXIST, unix.ENOTEMPTY),
		)
		_ = unix.Unlinkat(d.fd, temp, unix.AT_REMOVEDIR) // it remains if another process was faster
	}
	if err != nil {
		return nil, d.pathError("create the folder", name, err)
	}
	return d.Sub(name)
}

// rename doesn't replace, except an empty folder on NFS.
func (d *Folder) rename(temp, name string) error {
	err := unix.Renameat2(d.fd, temp, d.fd, name, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EINVAL) {
		err = unix.Renameat(d.fd, temp, d.fd, name)
	}
	return err
}

// PrivateSub is Sub. It creates a missing folder that passes CheckPrivate.
func (d *Folder) PrivateSub(name string, mode uint32) (*Folder, error) {
	if err := Ignore(unix.Mkdirat(d.fd, name, mode), unix.EEXIST); err != nil {
		return nil, err
	}
	sub, err := d.Sub(name)
	if err == nil {
		err = sub.Chmod(mode) // despite the umask
	}
	if err == nil {
		err = sub.CheckPrivate()
	}
	return sub.OrClose(err)
}

// Status is the status of the folder itself.
func (d *Folder) Status() (st unix.Stat_t, err error) {
	err = unix.Fstat(d.fd, &st)
	return st, d.pathError("stat", "", err)
}

// Mount identifies the folder's mount. known is false before Linux 5.8.
func (d *Folder) Mount() (id uint64, known bool) {
	var st unix.Statx_t
	err := unix.Statx(d.fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st)
	return st.Mnt_id, err == nil && st.Mask&unix.STATX_MNT_ID != 0
}

// Chmod sets the mode of the folder itself.
func (d *Folder) Chmod(mode uint32) error { return unix.Fchmod(d.fd, mode) }

// Own makes the folder ours.
func (d *Folder) Own(mode uint32) error {
	if err := unix.Fchown(d.fd, os.Geteuid(), os.Getegid()); err != nil {
		return d.pathError("chown", "", err)
	}
	return d.Chmod(mode)
}

// CheckPrivate refuses a folder that others than root and us own, or may write.
func (d *Folder) CheckPrivate() error {
	st, err := d.Status()
	if err == nil && !onlyOwnerWrites(&st) {
		err = notTrusted(d.Path, &st)
	}
	return err
}

// IsOurs says whether this user owns the folder and can write.
func (d *Folder) IsOurs() bool {
	st, err := d.Status()
	return err == nil && int(st.Uid) == os.Geteuid() && unix.Faccessat(d.fd, ".", unix.W_OK, unix.AT_EACCESS) == nil
}

func unsafeDir(err error, path string) error {
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%w: %s is not a folder: remove it", ErrUnsafe, path)
	}
	return err
}

// Ignore returns nil for harmless errors.
func Ignore(err error, harmless ...error) error {
	for _, h := range harmless {
		if errors.Is(err, h) {
			return nil
		}
	}
	return err
}
