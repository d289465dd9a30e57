package shell

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// FindReal finds the program that a shim replaces: the first in PATH that is neither
// the genv at self nor the shim of another genv, which would start each other without
// end. Relative folders are ignored. If there is none, the error is exec.ErrNotFound.
func FindReal(program, path, self string) (string, error) {
	own, err := os.Stat(self)
	if err != nil {
		return "", fmt.Errorf("look for %s: %w", program, err)
	}
	for _, dir := range filepath.SplitList(path) {
		candidate := filepath.Join(dir, program)
		if !filepath.IsAbs(dir) || shimsFolder(dir) {
			continue
		}
		info, err := os.Stat(candidate)
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 &&
			!os.SameFile(info, own) && !leadsToGenv(candidate) {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("%s: %w in PATH, except genv's own shim", program, exec.ErrNotFound)
}

// shimsFolder recognises the folder of any genv's shims by its name.
func shimsFolder(dir string) bool {
	dir = filepath.Clean(dir)
	return filepath.Base(dir) == "shims" && filepath.Base(filepath.Dir(dir)) == "genv"
}

func leadsToGenv(path string) bool {
	target, err := filepath.EvalSymlinks(path)
	return err == nil && filepath.Base(target) == "genv"
}

// ExitStatus is the status that a shell reports for a program that has ended: bash(1),
// "EXIT STATUS".
func ExitStatus(ended *os.ProcessState) int {
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return ended.ExitCode()
}
