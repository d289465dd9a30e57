// Package rootfile says where root's genv keeps what it notes about a host, and opens the
// folders of it. Only root can write them; the caller decides what a file contains.
//
//	path := filepath.Join(rootfile.RunDir(os.Getenv), rootfile.Name(os.Getenv, "asked"))
//	dir, err := rootfile.OpenDir(filepath.Dir(path))
package rootfile

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"

	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// RunDir is the folder of what holds until the next boot: /run/genv, or in GENV_ROOT_DIR,
// which sudo doesn't pass on.
func RunDir(getenv func(string) string) string {
	if root := getenv("GENV_ROOT_DIR"); root != "" {
		return filepath.Join(root, "run")
	}
	return "/run/genv"
}

// Name is the name of a JSON file. It depends on the state folder, since simulated hosts on
// one machine are enforced apart.
func Name(getenv func(string) string, name string) string {
	if clean := filepath.Clean(disk.Dir(getenv)); clean != disk.DefaultDir {
		sum := sha256.Sum256([]byte(clean))
		name += "." + hex.EncodeToString(sum[:8])
	}
	return name + ".json"
}

// OpenDir opens a folder that only root may write, and makes it if it is missing. One that
// others may write is an error that wraps folder.ErrUnsafe.
func OpenDir(path string) (*folder.Folder, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	return folder.OpenTrusted(path)
}
