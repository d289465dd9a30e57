package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"github.com/kevinburke/ssh_config"

	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// files are the configuration files, reread when one changes.
type files struct {
	roots []root
	who   identity

	mu      sync.Mutex
	watched []string // checked for changes
	seen    string   // their stamp when last read
	all     []line   // in ssh's order
	refused error    // the first unsupported line
}

type root struct {
	path, relative string // relative: base of relative names in Includes
	must, private  bool   // it must exist; its mode is checked
	user           bool   // Includes may use `~`
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

// stamp changes with the files, which it then rereads.
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

// OpenSSH's maximum depth of Includes.
const (
	maxDepth = 16
	maxSize  = 4 << 20
)

// read returns the lines of a file, except those that ssh ignores.
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
				continue // like glob(3)
			}
			included = append(included, f.read(name, r, depth+1, within)...)
		}
	}
	return included, ""
}

type line struct {
	place   Error // file and number
	keyword string
	words   []string
	// hosts are pattern lists that must all match: that of its Host line, and those around the Includes of its file.
	hosts [][]string
}

// included hides Include from the library, which would open the files itself, and elsewhere than ssh.
const included = "included"

// parse uses the library, but refuses lines that it reads differently from ssh.
func (f *files) parse(path, content string, r root, depth int, within [][]string) (parsed []line) {
	var text strings.Builder
	number := 0
	for written := range strings.Lines(content) {
		number++
		keyword, value := cut(written)
		problem := ""
		if keyword != "" && (value == "" || !slices.Contains(ignored(), keyword)) {
			problem = leftToSSH(keyword, value)
		}
		switch {
		case problem != "":
			f.refuse(Error{File: path, Line: number}, problem+withoutSSH)
		case keyword == "include":
			fmt.Fprint(&text, included, " ", value)
		case !slices.Contains(ignored(), keyword):
			fmt.Fprint(&text, keyword, " ", value)
		}
		text.WriteByte('\n')
	}
	read, err := ssh_config.DecodeBytes([]byte(text.String()))
	if err != nil {
		f.refuse(Error{File: path}, err.Error())
		return nil
	}
	for _, host := range read.Hosts {
		var patterns []string
		for _, pattern := range host.Patterns {
			patterns = append(patterns, pattern.String())
		}
		hosts := slices.Concat(within, [][]string{patterns})
		for _, node := range host.Nodes {
			if kv, ok := node.(*ssh_config.KV); ok {
				parsed = append(parsed, f.lines(kv, path, r, depth, hosts)...)
			}
		}
	}
	return parsed
}

func (f *files) lines(kv *ssh_config.KV, path string, r root, depth int, hosts [][]string) []line {
	l := line{place: Error{File: path, Line: kv.Pos().Line}, keyword: kv.Key, words: []string{kv.Value}, hosts: hosts}
	if kv.Key == included {
		more, problem := f.include(strings.Fields(kv.Value), r, depth, hosts)
		if problem != "" {
			f.refuse(l.place, problem+withoutSSH)
		}
		return more
	}
	h := honoured()[kv.Key]
	if h.arity == many {
		l.words = strings.Fields(kv.Value)
	}
	for _, word := range l.words {
		if !h.valid(word) {
			f.refuse(l.place, fmt.Sprintf("%q for %s", word, kv.Key)+withoutSSH)
		}
	}
	return []line{l}
}

// cut splits a line into lower-case keyword and value; empty for blank lines and comments.
func cut(line string) (keyword, value string) {
	line = strings.Trim(line, " \t\r\n\f")
	if strings.HasPrefix(line, "#") {
		return "", ""
	}
	end := strings.IndexAny(line, " \t=")
	if end < 0 {
		end = len(line)
	}
	keyword, value = strings.ToLower(line[:end]), strings.TrimLeft(line[end:], " \t")
	value = strings.TrimLeft(strings.TrimPrefix(value, "="), " \t")
	if keyword == "host" {
		value = strings.ReplaceAll(value, "\t", " ") // the library only splits at spaces
	}
	return cmp.Or(aliases[keyword], keyword), value
}

// withoutSSH is for a line that only ssh can read.
const withoutSSH = " cannot be honoured without ssh: install the OpenSSH client"

// leftToSSH names what only ssh reads, or "": unknown keywords, and values that the library or another OpenSSH reads
// differently.
func leftToSSH(keyword, value string) string {
	h, ok := honoured()[keyword]
	bare, _, comment := strings.Cut(value, "#")
	trimmed := strings.TrimRight(bare, " \t")
	quoted := len(trimmed) > 2 && trimmed[0] == '"' && strings.IndexByte(trimmed[1:], '"') == len(trimmed)-2
	switch {
	case !ok && keyword != "host" && keyword != "include":
		return keyword
	case trimmed == "":
		return keyword + " with no value"
	case !utf8.ValidString(value) || strings.TrimSpace(value) != strings.Trim(value, " \t"):
		return "a value that is not plain text"
	case h.arity == rest:
		if comment || value[0] == '"' {
			return keyword + " with # or in quotes"
		}
	case strings.ContainsAny(trimmed, `'\`):
		return "a backslash or a single quote"
	case comment && trimmed == bare, strings.Contains(trimmed, `"`) && (!quoted || !ok || h.arity == many):
		return keyword + " with # or quotes within its value"
	case ok && h.arity != many && !quoted && strings.ContainsAny(trimmed, " \t"):
		return keyword + " with more than one value"
	}
	return ""
}
