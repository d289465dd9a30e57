package shell

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

var shims = []string{"docker", "nvidia-smi"}

// ErrUnsafeShims is about a folder that must not be in PATH.
var ErrUnsafeShims = errors.New("unsafe folder")

// Shim returns the program of argv[0] if genv was started as its shim.
func Shim(argv0 string) (program string, ok bool) {
	base := filepath.Base(argv0)
	return base, slices.Contains(shims, base)
}

// ShimsDir is the folder of shims for the genv at an absolute path. If the first one is missing, EnsureShims makes the
// second:
//
//   - ../lib/genv/shims relative to the program's folder, where `make install` puts it;
//   - genv/shims in the user's cache (XDG_CACHE_HOME or ~/.cache).
//
// Others can never write to it: they would choose what docker is.
func ShimsDir(exe string, getenv func(string) string) (dir string, err error) {
	installed := filepath.Join(filepath.Dir(exe), "..", "lib", "genv", "shims")
	if checkShims(installed, exe) == nil {
		return installed, nil
	}
	if cache := getenv("XDG_CACHE_HOME"); filepath.IsAbs(cache) {
		return filepath.Join(cache, "genv", "shims"), nil
	}
	home := getenv("HOME")
	if !filepath.IsAbs(home) {
		return "", fmt.Errorf("no place for the shims: HOME is not an absolute path (%q)", home)
	}
	return filepath.Join(home, ".cache", "genv", "shims"), nil
}

// EnsureShims makes a folder with mode 0700 and links to the genv at an absolute path. The error is ErrUnsafeShims if
// users other than this one or root could write to it.
func EnsureShims(dir, exe string) error {
	if checkShims(dir, exe) == nil {
		return nil
	}
	if err := checkHome(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return fmt.Errorf("create the folder of the shims: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create the folder of the shims: %w", err)
	}
	if err := checkOwner(dir); err != nil {
		return err
	}
	for _, program := range shims {
		if err := link(exe, filepath.Join(dir, program)); err != nil {
			return fmt.Errorf("link the shim of %s: %w", program, err)
		}
	}
	return nil
}

func checkShims(dir, exe string) error {
	if err := checkOwner(dir); err != nil {
		return err
	}
	self, err := os.Stat(exe)
	if err != nil {
		return err
	}
	for _, program := range shims {
		info, err := os.Stat(filepath.Join(dir, program))
		if err != nil {
			return err
		}
		if !os.SameFile(info, self) {
			return fmt.Errorf("%s in %s is not %s", program, dir, exe)
		}
	}
	return nil
}

// checkOwner refuses a folder that others may write to, or a link.
func checkOwner(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir() || !ok:
		return fmt.Errorf("%w: %s is not a folder: remove it", ErrUnsafeShims, dir)
	case stat.Uid != 0 && int64(stat.Uid) != int64(os.Geteuid()):
		return fmt.Errorf("%w: %s belongs to uid %d", ErrUnsafeShims, dir, stat.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%w: others may write to %s: run chmod go-w on it", ErrUnsafeShims, dir)
	}
	return nil
}

// checkHome refuses to create folders in another user's folder, as for root with a user's HOME under `sudo -E`.
func checkHome(dir string) error {
	parent := filepath.Dir(dir)
	info, err := os.Stat(parent)
	if errors.Is(err, fs.ErrNotExist) && parent != dir {
		return checkHome(parent)
	}
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int64(stat.Uid) != int64(os.Geteuid()) {
		return fmt.Errorf("%w: %s belongs to another user, so no shims are put there", ErrUnsafeShims, parent)
	}
	return nil
}

// link replaces path by a symbolic link in one step.
func link(target, path string) error {
	temporary := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.Symlink(target, temporary); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		_ = os.Remove(temporary)
		return err
	}
	return nil
}

// FindReal finds the program that a shim replaces: the first in absolute folders of PATH that is neither the genv at
// self nor another genv's shim. If there is none, the error is exec.ErrNotFound.
func FindReal(program, path, self string) (string, error) {
	own, err := os.Stat(self)
	if err != nil {
		return "", fmt.Errorf("look for %s: %w", program, err)
	}
	for _, dir := range filepath.SplitList(path) {
		candidate := filepath.Join(dir, program)
		if !filepath.IsAbs(dir) || strings.HasSuffix(filepath.Dir(candidate), "/genv/shims") {
			continue
		}
		info, err := os.Stat(candidate)
		if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 || os.SameFile(info, own) {
			continue
		}
		if target, err := filepath.EvalSymlinks(candidate); err != nil || filepath.Base(target) != "genv" {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("%s: %w (genv's own shim does not count): install %s, or add its folder to PATH", program,
		exec.ErrNotFound, program)
}

// ExitStatus is the status that a shell reports for an ended program: bash(1), "EXIT STATUS".
func ExitStatus(ended *os.ProcessState) int {
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return ended.ExitCode()
}
