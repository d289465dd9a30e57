package disk

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

	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// DefaultRootDir is the folder of root's notes about state folders, and of the state that root owns.
const DefaultRootDir = "/var/lib/genv"

// RootDir returns the folder of root's notes. getenv looks up environment variables, such as os.Getenv.
func RootDir(getenv func(string) string) string {
	return cmp.Or(getenv("GENV_ROOT_DIR"), DefaultRootDir)
}

// maxNote bounds a small note, in bytes.
const maxNote = 16 << 10

func (s *Store) path() string {
	if abs, err := filepath.Abs(s.dir); err == nil {
		return abs
	}
	return s.dir
}

// rootName is the folder of root's notes about a state folder: readable, and unique by the hash.
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

func (s *Store) openNotes(name string, create bool) (*folder.Folder, error) {
	if create && os.Geteuid() == 0 {
		makeRoot(s.RootDir)
	}
	all, err := folder.OpenTrusted(s.RootDir)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	sub, err := all.Sub(name)
	if errors.Is(err, fs.ErrNotExist) && create && all.IsOurs() {
		sub, err = all.PrivateSub(name)
	}
	return sub, err
}

// makeRoot creates the folder of root's notes. If that fails, as on a read-only file system, there are no notes.
func makeRoot(path string) {
	if os.MkdirAll(filepath.Dir(path), 0o755) == nil && os.Mkdir(path, 0o755) == nil {
		_ = os.Chmod(path, 0o755) // whatever the umask
	}
}

// keepsNotes says whether this genv keeps root's notes: it is root, or on a simulated host their owner.
func (s *Store) keepsNotes() bool {
	if s.RootDir == "" || !s.System.Namespaces().Known() {
		return false
	}
	var st unix.Stat_t
	if err := unix.Stat(s.RootDir, &st); err != nil {
		return errors.Is(err, unix.ENOENT) && os.Geteuid() == 0
	}
	return int(st.Uid) == os.Geteuid() && st.Mode&0o022 == 0
}

// openShared opens the state folder of all users. Root doesn't touch a file system that a user has mounted there.
func (s *Store) openShared() (*folder.Folder, error) {
	if !s.keepsNotes() {
		return folder.Open(s.dir)
	}
	if err := s.tampered(); err != nil {
		return nil, err
	}
	dir, err := folder.Open(s.dir)
	if err == nil {
		dir.NoMounts = true // one that comes and goes was not there just now
	}
	return dir, err
}

func (s *Store) tampered() error {
	if mount := system.UsersMount(system.Mountinfo(system.RealProc), s.path()); mount != "" {
		return fmt.Errorf("%w: %s; have root unmount it: umount --lazy %s", ErrTampered, mount, s.path())
	}
	return nil
}

// RunDir is the folder of what holds until the next boot: /run/genv, or in GENV_ROOT_DIR, which sudo doesn't pass on.
func RunDir(getenv func(string) string) string {
	if root := getenv("GENV_ROOT_DIR"); root != "" {
		return filepath.Join(root, "run")
	}
	return "/run/genv"
}

// RootFile is the name of a JSON file of a state folder: simulated hosts on one machine are apart.
func RootFile(getenv func(string) string, name string) string {
	if clean := filepath.Clean(Dir(getenv)); clean != DefaultDir {
		sum := sha256.Sum256([]byte(clean))
		name += "." + hex.EncodeToString(sum[:8])
	}
	return name + ".json"
}
