package inventory

import (
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/seed-3119e985/genv/remote"
)

// Selection is the flags that select hosts.
type Selection struct {
	// Hosts are the values of -H, each a list separated by commas.
	Hosts []string
	// HostFile is the value of --hostfile, plain or YAML; "" for none.
	HostFile string
	// Exclude are the values of -x, written like those of -H, without files. One
	// that is not a host of the selection or the inventory is an error: it may
	// be a misspelt name.
	Exclude []string
	// User is the value of -l, "" for none. It takes precedence over the user of a
	// YAML file, but not over the one of user@host.
	User string
	// DefaultFiles are where names and groups are looked up if no YAML file is
	// given: in the first that exists.
	DefaultFiles []string
}

// Load returns the hosts of a selection in the order in which they are named,
// each once; there is at least one. Its errors are ErrUsage.
func Load(sel Selection, open Open) ([]remote.Host, error) {
	if err := checkUser(sel.User); err != nil {
		return nil, usagef("-l: %w", err)
	}
	words, files, err := sel.read(open)
	if err != nil {
		return nil, err
	}
	fleet, err := findFleet(files, sel.DefaultFiles, len(words) > 0, open)
	if err != nil {
		return nil, err
	}
	selected, err := selectHosts(words, fleet)
	if err != nil {
		return nil, err
	}
	if len(selected.hosts) == 0 {
		return nil, sel.noHosts(words, fleet)
	}
	if err := selected.exclude(sel.Exclude, fleet); err != nil {
		return nil, err
	}
	return selected.withSettings(fleet, sel.User), nil
}

// read returns the words of -H and of a plain host file, and the YAML files.
func (sel Selection) read(open Open) (words []word, files []yamlFile, err error) {
	items := splitAll(sel.Hosts, "-H")
	if sel.HostFile != "" {
		items = append(items, word{sel.HostFile, "--hostfile"})
	}
	seen := map[string]bool{} // the files
	for _, item := range items {
		inFlag := item.place == "-H"
		if inFlag && !isFile(item.text) {
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

// noHosts is the error for a selection without hosts.
func (sel Selection) noHosts(words []word, f *fleet) error {
	switch {
	case len(words) > 0:
		return usagef("%s: %s has no hosts; add some to the group", words[0].place, words[0].text)
	case f.strict:
		return usagef("%s: it has no hosts; add some under `hosts:`", f.in())
	case sel.HostFile != "":
		return usagef("--hostfile %s: it has no hosts; write one per line", sel.HostFile)
	default:
		return usagef("no hosts are selected; use -H a,b or --hostfile FILE")
	}
}

// DefaultFiles are the default paths of hosts.yaml: genv/hosts.yaml in the
// user's configuration folder ($XDG_CONFIG_HOME, else ~/.config), then
// /etc/genv/hosts.yaml.
func DefaultFiles(getenv func(string) string) []string {
	var files []string
	if dir := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		files = append(files, filepath.Join(dir, "genv/hosts.yaml"))
	} else if home := getenv("HOME"); filepath.IsAbs(home) {
		files = append(files, filepath.Join(home, ".config/genv/hosts.yaml"))
	}
	return append(files, "/etc/genv/hosts.yaml")
}

// findFleet reads the files that were given, or else the first default file
// that exists, if one is needed.
func findFleet(files []yamlFile, defaults []string, needed bool, open Open) (*fleet, error) {
	f := &fleet{strict: len(files) > 0, index: map[string]int{}, places: map[string]string{}, groups: map[string][]string{}}
	for _, file := range files {
		if err := f.add(file); err != nil {
			return nil, err
		}
	}
	if f.strict || !needed {
		return f, nil
	}
	for _, path := range defaults {
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
