package folder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrUntrusted is wrapped if another user than root (or the caller) can have written a file,
// or can have put it there.
var ErrUntrusted = errors.New("not trusted")

// maxLinks is how many symbolic links a path may have, as in the kernel.
const maxLinks = 40

// ReadRegular returns the content of a regular file. It doesn't wait at a FIFO. More than limit
// bytes are an error.
func ReadRegular(path string, limit int64) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file", path)
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return data, err
}

// TrustedPath is where the file or folder at a path is, without links, if only root or the
// caller can write it or replace it: it looks at each folder and each link of the path. Otherwise the error wraps
// ErrUntrusted. It is fs.ErrNotExist if there is none. Paths, and absolute links in them, begin at root, which is
// empty or a folder.
//
// Each name is looked at in a folder in which others can replace nothing, so that it is
// still the same when the next one is looked at.
func TrustedPath(root, path string) (string, error) {
	w := walk{root: filepath.Clean("/" + root), rest: strings.Split(path, "/")}
	if err := w.enter(w.root); err != nil {
		return "", err
	}
	for len(w.rest) > 0 {
		name := w.rest[0]
		w.rest = w.rest[1:]
		if err := w.step(name); err != nil {
			return "", err
		}
	}
	return w.at, nil
}

// walk is a path that is being followed.
type walk struct {
	root, at string
	rest     []string // the names that follow
	links    int
	// shared says that all users can make files at w.at. The sticky bit lets them replace
	// nothing of root's, but a file or a link of root's may have been moved there.
	shared bool
}

func (w *walk) step(name string) error {
	switch {
	case name == "", name == ".", name == ".." && w.at == w.root:
		return nil
	case name == "..":
		return w.enter(filepath.Dir(w.at))
	}
	return w.enter(filepath.Join(w.at, name))
}

// enter goes to a path in a folder that was looked at before, or to where the link there leads.
func (w *walk) enter(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	st, isLink := info.Sys().(*syscall.Stat_t), info.Mode()&fs.ModeSymlink != 0
	writable := !isLink && st.Mode&0o022 != 0
	sticky := info.IsDir() && st.Mode&unix.S_ISVTX != 0
	switch {
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%w: %s belongs to uid %d, not to root", ErrUntrusted, path, st.Uid)
	case writable && !sticky:
		return fmt.Errorf("%w: %s has mode %04o: others than root can write it", ErrUntrusted, path, st.Mode&0o7777)
	case w.shared && !info.IsDir():
		return fmt.Errorf("%w: others than root can write the folder of %s", ErrUntrusted, path)
	case isLink:
		return w.follow(path)
	}
	w.at, w.shared = path, writable
	return nil
}

func (w *walk) follow(link string) error {
	if w.links++; w.links > maxLinks {
		return fmt.Errorf("%w: %s leads to more than %d links", ErrUntrusted, link, maxLinks)
	}
	to, err := os.Readlink(link)
	if err != nil {
		return err
	}
	w.rest = append(strings.Split(to, "/"), w.rest...)
	if filepath.IsAbs(to) {
		return w.enter(w.root)
	}
	return nil
}
