package state

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultRootDir is the folder in which root's genv keeps notes about a host's state
// folders, and its last good copies of their files.
const DefaultRootDir = "/var/lib/genv"

// RootDir returns the folder of root's notes. getenv looks up environment variables,
// such as os.Getenv.
func RootDir(getenv func(string) string) string {
	return cmp.Or(getenv("GENV_ROOT_DIR"), DefaultRootDir)
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

// rootName returns the name of the folder of root's notes about the state folder at
// path. The hash makes it unique; the rest is for people.
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

// openRoot opens the folder of root's notes about this state folder. If there is none,
// root creates it; for others the result is nil without an error.
func (s *Store) openRoot() (*folder, error) {
	if os.Geteuid() == 0 {
		makeRoot(s.rootDir)
	}
	root, err := s.openNotes(rootName(s.path()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("root's notes: %w", err)
	}
	return root, nil
}

func (s *Store) openNotes(name string) (*folder, error) {
	all, err := openDir(unix.AT_FDCWD, s.rootDir, 0)
	if err != nil {
		return nil, err
	}
	defer all.close()
	if err := all.checkPrivate(); err != nil {
		return nil, err
	}
	sub, err := openDir(all.fd, name, unix.O_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) && all.isOurs() {
		s.prune(all)
		sub, err = all.makeSub(name)
	}
	return named(sub, filepath.Join(s.rootDir, name)), err
}

// makeSub creates and opens a folder that only its owner can write.
func (d *folder) makeSub(name string) (*folder, error) {
	if err := ignore(unix.Mkdirat(d.fd, name, 0o755), unix.EEXIST); err != nil {
		return nil, err
	}
	sub, err := openDir(d.fd, name, unix.O_NOFOLLOW)
	if err == nil {
		err = unix.Fchmod(sub.fd, 0o755) // whatever the umask
	}
	return sub, err
}

// makeRoot creates the folder of root's notes. If that fails, as on a read-only file
// system, there are no notes.
func makeRoot(path string) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	if os.MkdirAll(filepath.Dir(path), 0o755) == nil && os.Mkdir(path, 0o755) == nil {
		_ = os.Chmod(path, 0o755) // whatever the umask
	}
}

// checkPrivate refuses a folder that other users than its owner may write, or that
// belongs to another user than root and us, since its content is trusted.
func (d *folder) checkPrivate() error {
	var st unix.Stat_t
	if err := unix.Fstat(d.fd, &st); err != nil {
		return err
	}
	if st.Mode&0o022 != 0 || (st.Uid != 0 && int(st.Uid) != os.Geteuid()) {
		return fmt.Errorf("%w: %s belongs to uid %d with mode %04o: only root may be able to write it", ErrUnsafe, d.path, st.Uid, st.Mode&0o7777)
	}
	return nil
}

// isOurs says whether the folder belongs to this user and is writable.
func (d *folder) isOurs() bool {
	var st unix.Stat_t
	return unix.Fstat(d.fd, &st) == nil && int(st.Uid) == os.Geteuid() &&
		unix.Faccessat(d.fd, ".", unix.W_OK, unix.AT_EACCESS) == nil
}

// rootDevice is the device of the file system of root's notes.
func rootDevice(path string) uint64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	return st.Dev
}

// prune removes the notes about state folders that no longer exist and were last used
// in an earlier boot.
func (s *Store) prune(all *folder) {
	boot := s.system.BootID()
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
