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
func (s *Store) openRoot() (*folder.Folder, error) {
	if os.Geteuid() == 0 {
		makeRoot(s.RootDir)
	}
	root, err := s.openNotes(rootName(s.path()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("root's notes: %w", err)
	}
	return root, nil
}

func (s *Store) openNotes(name string) (*folder.Folder, error) {
	all, err := folder.OpenTrusted(s.RootDir)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	sub, err := all.Sub(name)
	if errors.Is(err, fs.ErrNotExist) && all.IsOurs() {
		sub, err = all.PrivateSub(name)
	}
	return sub, err
}

// makeRoot creates the folder of root's notes. If that fails, as on a read-only file
// system, there are no notes.
func makeRoot(path string) {
	if os.MkdirAll(filepath.Dir(path), 0o755) == nil && os.Mkdir(path, 0o755) == nil {
		_ = os.Chmod(path, 0o755) // whatever the umask
	}
}

// rootDevice is the device of the file system of root's notes.
func rootDevice(path string) uint64 {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return 0
	}
	return st.Dev
}

// RunDir is the folder of what holds until the next boot: /run/genv, or in GENV_ROOT_DIR,
// which sudo doesn't pass on.
func RunDir(getenv func(string) string) string {
	if root := getenv("GENV_ROOT_DIR"); root != "" {
		return filepath.Join(root, "run")
	}
	return "/run/genv"
}

// RootFile is the name of a JSON file. It depends on the state folder, since simulated hosts on
// one machine are enforced apart.
func RootFile(getenv func(string) string, name string) string {
	if clean := filepath.Clean(Dir(getenv)); clean != DefaultDir {
		sum := sha256.Sum256([]byte(clean))
		name += "." + hex.EncodeToString(sum[:8])
	}
	return name + ".json"
}
