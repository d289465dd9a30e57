package config

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// files are the configuration files, which are read again when one changes.
type files struct {
	roots []root
	who   identity

	mu      sync.Mutex
	watched []string // files and folders that are checked for changes
	seen    string   // the stamp of the watched files when they were read
	all     []line   // of all files, in the order in which ssh reads them
	refused error    // the first line that cannot be honoured
}

// root is a top-level file, and how ssh treats it.
type root struct {
	path, relative string // relative: the folder for relative names in Includes
	must, private  bool   // it must exist; its mode is checked
	user           bool   // `~` is allowed in Includes
}

func newFiles(o ResolverOptions, who identity) *files {
	f := &files{who: who}
	home := filepath.Join(who.home, ".ssh")
	system := cmp.Or(o.SystemFile, "/etc/ssh/ssh_config")
	switch {
	case strings.EqualFold(o.File, "none"):
	case o.File != "":
		f.roots = []root{{path: o.File, relative: home, must: true, user: true}}
	default:
		f.roots = []root{
			{path: filepath.Join(home, "config"), relative: home, private: true, user: true},
			{path: system, relative: filepath.Dir(system)},
		}
	}
	return f
}

// stamp is different after a file has changed; then the files are read again.
func (f *files) stamp() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := "." + folder.Stamp(f.watched...); f.seen == "" || now != f.seen {
		f.load()
		f.seen = "." + folder.Stamp(f.watched...)
	}
	return f.seen
}

func (f *files) load() {
	f.watched, f.all, f.refused = nil, nil, nil
	for _, r := range f.roots {
		f.all = append(f.all, f.read(r.path, r, 0, nil)...)
	}
}

// The maximum depth of Includes is that of OpenSSH.
const (
	maxDepth = 16
	maxSize  = 4 << 20
)

// read returns no line of a file that ssh would ignore.
func (f *files) read(path string, r root, depth int, within [][]string) []line {
	f.watched = append(f.watched, path)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && (depth > 0 || !r.must):
		return nil
	case err != nil:
	case !info.Mode().IsRegular() && path != os.DevNull || info.Size() > maxSize || depth > maxDepth:
		err = errors.New("not a regular file of at most 4 MiB, or included too deeply")
	case r.private && !trusted(info):
		err = errors.New("bad owner or permissions: it must be yours, and others must not be able to write to it")
	}
	var content []byte
	if err == nil {
		content, err = os.ReadFile(path)
	}
	if err != nil {
		f.refuse(Error{File: path}, err.Error())
	}
	return f.parse(path, string(content), r, depth, within)
}

// trusted is the check that ssh does for the user's own files.
func trusted(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Getuid()) && info.Mode().Perm()&0o022 == 0
}

func (f *files) refuse(at Error, problem string) {
	if f.refused == nil {
		at.Problem = problem
		f.refused = &at
	}
}

func (f *files) include(patterns []string, r root, depth int, within [][]string) (included []line, problem string) {
	for _, pattern := range patterns {
		switch {
		case strings.ContainsAny(pattern, `%${}\`):
			return nil, "this Include"
		case strings.HasPrefix(pattern, "~/") && r.user:
			pattern = f.who.home + pattern[1:]
		case strings.HasPrefix(pattern, "~"):
			return nil, "this Include"
		case !filepath.IsAbs(pattern):
			pattern = filepath.Join(r.relative, pattern)
		}
		names, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err.Error()
		}
		f.watched = append(f.watched, filepath.Dir(pattern))
		for _, name := range slices.Sorted(slices.Values(names)) {
			if strings.HasPrefix(filepath.Base(name), ".") && !strings.HasPrefix(filepath.Base(pattern), ".") {
				continue // the C library's glob leaves these out
			}
			included = append(included, f.read(name, r, depth+1, within)...)
		}
	}
	return included, ""
}
