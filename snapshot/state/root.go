package state

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultRootDir is where root's genv keeps its own notes about a host's state
// folders, and its last good copies of their files.
const DefaultRootDir = "/var/lib/genv"

// RootDir is the folder of root's notes, from an environment such as os.Getenv.
func RootDir(getenv func(string) string) string {
	if dir := getenv("GENV_ROOT_DIR"); dir != "" {
		return dir
	}
	return DefaultRootDir
}

const (
	rootNote   = "note.json"      // in root's folder
	folderNote = "genv.host.json" // in the state folder
)

// maxNote bounds a note, in bytes: a path and some numbers.
const maxNote = 16 << 10

// path is the state folder's absolute path.
func (s *Store) path() string {
	if abs, err := filepath.Abs(s.dir); err == nil {
		return abs
	}
	return s.dir
}

// rootName is the folder of root's notes about the state folder at path. The
// hash keeps two paths apart; the rest is for people.
func rootName(path string) string {
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, path)
	sum := sha256.Sum256([]byte(path))
	return strings.Trim(readable[max(0, len(readable)-64):], "-") + "-" + hex.EncodeToString(sum[:12])
}

// openRoot opens the folder of root's notes about this state folder. If it is
// missing, root makes it; for others it is then nil, without an error.
func (s *Store) openRoot() (*folder, error) {
	if os.Geteuid() == 0 {
		makeRoot(s.root)
	}
	all, err := openDir(unix.AT_FDCWD, s.root, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	if err != nil {
		return nil, fmt.Errorf("root's notes: %w", err)
	}
	defer all.close()
	if err := all.private(); err != nil {
		return nil, err
	}
	name := rootName(s.path())
	sub, err := openDir(all.fd, name, unix.O_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) && all.mine() {
		s.prune(all)
		if err = unix.Mkdirat(all.fd, name, 0o755); ignore(err, unix.EEXIST) == nil {
			sub, err = openDir(all.fd, name, unix.O_NOFOLLOW)
		}
		if err == nil {
			err = unix.Fchmod(sub.fd, 0o755) // whatever the umask
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	if err != nil {
		return nil, fmt.Errorf("root's notes: %w", err)
	}
	return named(sub, filepath.Join(s.root, name)), nil
}

// makeRoot makes the folder of root's notes. Where that fails, as on a file
// system that is read-only, there are none.
func makeRoot(path string) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	if os.MkdirAll(filepath.Dir(path), 0o755) == nil && os.Mkdir(path, 0o755) == nil {
		_ = os.Chmod(path, 0o755) // whatever the umask
	}
}

// private refuses a folder that others than its owner may write, or that is
// neither root's nor our own, since its content is trusted.
func (d *folder) private() error {
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err != nil {
		return err
	}
	if st.Mode&0o022 != 0 || (st.Uid != 0 && int(st.Uid) != os.Geteuid()) {
		return fmt.Errorf("%w: %s belongs to uid %d with mode %04o: only root may be able to write it", ErrUnsafe, d.path, st.Uid, st.Mode&0o7777)
	}
	return nil
}

// mine says whether the folder is this user's, and writable.
func (d *folder) mine() bool {
	var st unix.Stat_t
	return unix.Fstat(d.fd, &st) == nil && int(st.Uid) == os.Geteuid() &&
		unix.Faccessat(d.fd, ".", unix.W_OK, unix.AT_EACCESS) == nil
}

// rootDevice is the file system of root's notes, 0 where it can't be told.
func rootDevice(path string) uint64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	return st.Dev
}

// prune removes the notes about state folders that were last used in an earlier
// boot and no longer exist.
func (s *Store) prune(all *folder) {
	boot := s.machine.BootID()
	entries, err := os.ReadDir(all.path)
	if err != nil || boot == "" {
		return
	}
	for _, e := range entries {
		old, err := openDir(all.fd, e.Name(), unix.O_NOFOLLOW)
		if err != nil {
			continue
		}
		n := readNote(old, rootNote)
		old.close()
		if n == nil || n.BootID == boot || n.BootID == "" || rootName(n.Path) != e.Name() {
			continue
		}
		if _, err := os.Lstat(n.Path); errors.Is(err, fs.ErrNotExist) {
			_ = os.RemoveAll(filepath.Join(all.path, e.Name()))
		}
	}
}

// readNote is nil where there is no note that can be read.
func readNote(dir *folder, name string) *note {
	if dir == nil {
		return nil
	}
	data, err := dir.readBounded(name, maxNote)
	var n note
	if err != nil || json.Unmarshal(data, &n) != nil || !n.known() {
		return nil
	}
	return &n
}

// writeNote writes a note if it differs from the one that is there.
func writeNote(dir *folder, name string, n note, mode uint32) error {
	if old := readNote(dir, name); old != nil && *old == n {
		return nil
	}
	data, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return dir.put(name, append(data, '\n'), mode)
}

// put replaces a file whole, and has it safe on disk.
func (d *folder) put(name string, data []byte, mode uint32) error {
	temp := name + tempSuffix
	if err := d.remove(temp); err != nil {
		return err
	}
	if err := d.create(temp, data, mode, true); err != nil {
		return err
	}
	if err := unix.Renameat(d.fd, temp, d.fd, name); err != nil {
		_ = d.remove(temp)
		return &fs.PathError{Op: "replace", Path: d.join(name), Err: err}
	}
	return unix.Fsync(d.fd)
}

// readBounded reads a regular file of at most limit bytes, following no link.
func (d *folder) readBounded(name string, limit int64) ([]byte, error) {
	fd, err := unix.Openat(d.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: d.join(name), Err: err}
	}
	file := os.NewFile(uintptr(fd), d.join(name))
	defer file.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > limit {
		return nil, fmt.Errorf("%w: %s", ErrUnsafe, file.Name())
	}
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%w: %s", ErrUnsafe, file.Name())
	}
	return data, err
}
