package nvidiasmi

import (
	"fmt"
	"os"
	"path/filepath"
)

// Find looks for the real nvidia-smi in path, which is written as PATH is. Our
// own shim has the same name: an entry that is the program self (os.Executable),
// through whatever links, is passed over. Relative entries are too, since this
// may run as root in anybody's folder. An empty self passes over nothing.
func Find(path, self string) (string, error) {
	own, _ := os.Stat(self) // nil when there is none: then nothing is ours
	for _, dir := range filepath.SplitList(path) {
		candidate := filepath.Join(dir, "nvidia-smi")
		if !filepath.IsAbs(candidate) {
			continue
		}
		info, err := os.Stat(candidate)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		if own == nil || !os.SameFile(own, info) {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("%w (PATH is %q)", ErrNotInstalled, path)
}
