// Package inventory reads and selects hosts, from -H and -x, a host file, and hosts.yaml.
//
//	hosts, err := inventory.Load(inventory.Selection{
//		Hosts:        []string{"gpu-[01-04],@h100"},
//		Exclude:      []string{"gpu-03"},
//		DefaultFiles: []string{"/etc/genv/hosts.yaml"},
//	}, open)
//
// docs/fleet.md has the syntax. An item of -H that ends in .yaml or .yml, or has a slash, is a file.
//
// YAML files list all hosts. -H and a plain host file (one host per line, # comments) select some; otherwise all are
// selected. Selected names must be in a given YAML file, to catch typing errors.
//
// Otherwise names and groups are looked up in the first existing file of Selection.DefaultFiles, with its hosts'
// settings; other hosts are accepted too.
//
// Host names are case-insensitive, like in DNS. Naming a host twice selects it once; different users or ports are an
// error.
package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Selection has the flags that select hosts.
type Selection struct {
	Hosts    []string // values of -H, each a comma-separated list
	HostFile string   // value of --hostfile, plain or YAML; "" for none
	// Exclude has the values of -x, without files. Unknown hosts are an error.
	Exclude []string
	User    string // value of -l: overrides the user in a YAML file, but not in user@host
	// DefaultFiles are used without a YAML file: the first that exists. OpenDefault opens it; nil: Load's Open.
	DefaultFiles []string
	OpenDefault  Open
	All          bool // select the whole default file if neither Hosts nor HostFile name any
}

// Load returns the selected hosts, at least one, once each, in the order named. Errors are ErrUsage.
func Load(sel Selection, open Open) ([]remote.Host, error) {
	if sel.User != "" {
		if err := text.CheckUsername(sel.User); err != nil {
			return nil, usagef("-l: %w", err)
		}
	}
	sel.All = sel.All && sel.HostFile == "" // a host file without hosts never means all
	words, files, err := sel.read(open)
	if err != nil {
		return nil, err
	}
	terms, err := sortTerms(words, splitAll(sel.Exclude, "-x"))
	if err != nil {
		return nil, err
	}
	fleet, err := sel.findFleet(files, len(words) > 0, open)
	if err != nil {
		return nil, err
	}
	if len(terms.include) == 0 && !fleet.strict && !sel.All {
		return nil, sel.noHosts(terms, fleet)
	}
	selected, err := selectHosts(terms.include, fleet)
	if err != nil {
		return nil, err
	}
	if len(selected.hosts) == 0 {
		return nil, sel.noHosts(terms, fleet)
	}
	if err := selected.narrow(terms, fleet); err != nil {
		return nil, err
	}
	return selected.withSettings(fleet, sel.User), nil
}

func (sel Selection) read(open Open) (words []word, files []yamlFile, err error) {
	items := splitAll(sel.Hosts, "-H")
	if sel.HostFile != "" {
		items = append(items, word{sel.HostFile, "--hostfile"})
	}
	seen := map[string]bool{} // files
	for _, item := range items {
		inFlag := item.place == "-H"
		if inFlag && !item.isFile() {
			words = append(words, item)
			continue
		}
		if seen[filepath.Clean(item.text)] {
			continue
		}
		seen[filepath.Clean(item.text)] = true
		data, err := readFile(item.text, item.place+" "+item.text, open)
		if err != nil {
			return nil, nil, err
		}
		if inFlag || isYAML(item.text, data) {
			files = append(files, yamlFile{item.text, data})
		} else {
			words = append(words, plainLines(item.text, data)...)
		}
	}
	return words, files, nil
}

func (sel Selection) noHosts(t terms, f *fleet) error {
	switch {
	case len(t.include) > 0:
		return usagef("%s: %s has no hosts; add some to the host group", t.include[0].place, t.include[0].text)
	case f.strict, sel.All && len(f.files) > 0:
		return usagef("%s: it has no hosts; add some under `hosts:`", f.in())
	case sel.HostFile != "" && len(t.within)+len(t.exclude) == 0:
		return usagef("--hostfile %s: it has no hosts; write one per line", sel.HostFile)
	case sel.All && len(sel.DefaultFiles) > 0:
		return usagef("no hosts are selected; use -H a,b or --hostfile FILE, or list the hosts in %s, which doesn't "+
			"exist yet", strings.Join(sel.DefaultFiles, " or "))
	case !sel.All && len(f.files)+len(sel.DefaultFiles) > 0:
		return usagef("no hosts are selected; use -H a,b or --hostfile FILE, or -H @all for all of hosts.yaml")
	default:
		return usagef("no hosts are selected; use -H a,b or --hostfile FILE")
	}
}

func (sel Selection) findFleet(files []yamlFile, needed bool, open Open) (*fleet, error) {
	f := newFleet()
	f.strict = len(files) > 0
	for _, file := range files {
		if err := f.add(file); err != nil {
			return nil, err
		}
	}
	if f.strict || !needed && !sel.All {
		return f, nil
	}
	if sel.OpenDefault != nil {
		open = sel.OpenDefault
	}
	for _, path := range sel.DefaultFiles {
		data, err := readFile(path, path, open)
		if err == nil {
			return f, f.add(yamlFile{path, data})
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return f, nil
}

// ErrUsage is wrapped by all errors here: the input must change. The text is a line with the flag, or file, line and
// column, and what to write instead.
var ErrUsage = errors.New("usage error")

func usagef(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return text.Worded(text.Printable(err.Error()), ErrUsage, err) // one line, whatever the names contain
}

// Open opens a file for reading. A missing file is fs.ErrNotExist.
type Open func(path string) (io.ReadCloser, error)

type yamlFile struct {
	path string
	data []byte
}

func readFile(path, place string, open Open) ([]byte, error) {
	file, err := open(path)
	if err != nil {
		return nil, usagef("%s: %w; check the path and its permissions", place, bare(err))
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, strictyaml.MaxSize+1))
	if err != nil {
		return nil, usagef("%s: %w; check that it is a file", place, bare(err))
	}
	if len(data) > strictyaml.MaxSize {
		return nil, usagef("%s: the file is larger than %d bytes; is it a host file?", place, strictyaml.MaxSize)
	}
	return data, nil
}

func bare(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

func (w word) isFile() bool {
	if _, isLabel := labelOf(w.text); isLabel || w.isNarrowing() {
		return false
	}
	return strings.Contains(w.text, "/") || isYAMLName(w.text)
}

func isYAMLName(path string) bool {
	ext := strings.ToLower(filepath.Ext(path))
	return ext == ".yaml" || ext == ".yml"
}

// isYAML tells YAML from a plain list, by name or the first line with content.
func isYAML(path string, data []byte) bool {
	if isYAMLName(path) {
		return true
	}
	for line := range bytes.Lines(data) {
		if text := withoutComment(string(line)); text != "" {
			key, _, ok := strings.Cut(text, ":")
			return text == "---" || text[0] == '{' || text[0] == '%' ||
				ok && (key == "defaults" || key == "hosts" || key == "groups")
		}
	}
	return false
}

func plainLines(path string, data []byte) []word {
	var words []word
	number := 0
	for line := range bytes.Lines(data) {
		number++
		if text := withoutComment(string(line)); text != "" {
			words = append(words, word{text, fmt.Sprintf("%s:%d", path, number)})
		}
	}
	return words
}

// withoutComment cuts at #, which no host name contains.
func withoutComment(line string) string {
	line, _, _ = strings.Cut(strings.TrimPrefix(line, "\uFEFF"), "#")
	return strings.TrimSpace(line)
}

func splitAll(values []string, flag string) []word {
	var items []word
	for _, value := range values {
		for _, item := range text.SplitHosts(value) {
			items = append(items, word{item, flag})
		}
	}
	return items
}

// word names hosts; place is where it is written.
type word struct{ text, place string }
