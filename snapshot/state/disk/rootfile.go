package disk

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
)

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
