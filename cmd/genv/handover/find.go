package handover

import (
	"fmt"
	"os"
	"path/filepath"
)

// find is the path of the other program: in the folder of this one, without symbolic links,
// or in another folder relative to that.
func find(name, elsewhere string) (string, error) {
	self, err := os.Executable() // what the kernel runs, wherever PATH and argv[0] lead
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	dir := filepath.Dir(self)
	for _, folder := range []string{dir, filepath.Join(dir, elsewhere)} {
		path := filepath.Join(folder, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is neither in %s nor in %s", name, dir, filepath.Join(dir, elsewhere))
}
