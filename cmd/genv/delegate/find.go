package delegate

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// find is the path of the other program: in the folder of this one, without symbolic links,
// or in another folder relative to that. It must be root's, or the owner's of this program:
// in a folder like /tmp everybody could put one.
func find(name, elsewhere string) (string, error) {
	self, err := os.Executable() // what the kernel runs, wherever PATH and argv[0] lead
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	own, err := os.Stat("/proc/self/exe") // also if another file is at its path by now
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	dir := filepath.Dir(self)
	for _, folder := range []string{dir, filepath.Join(dir, elsewhere)} {
		path := filepath.Join(folder, name)
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if uid := ownerOf(info); uid != 0 && uid != ownerOf(own) {
			return "", fmt.Errorf("%s belongs to uid %d, neither to root nor to the owner of %s", path, uid, self)
		}
		return path, nil
	}
	return "", fmt.Errorf("%s is neither in %s nor in %s", name, dir, filepath.Join(dir, elsewhere))
}

func ownerOf(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }
