package inventory

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/hostpattern"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// fleet is what the YAML files say: every host that there is, and the groups.
type fleet struct {
	files  []string
	strict bool // a host that is not in it is an error
	hosts  []remote.Host
	index  map[string]int      // of hosts, by folded name
	places map[string]string   // where a host or, behind an @, a group was written
	groups map[string][]string // the names of a group's hosts, in order
}

func newFleet() *fleet {
	return &fleet{index: map[string]int{}, places: map[string]string{}, groups: map[string][]string{}}
}

// everyone is the group of all hosts, which every fleet has.
const everyone = "all"

// findFleet reads the files that were given, or else the first default file
// that exists, if one is needed.
func findFleet(files []yamlFile, defaults []string, needed bool, open Open) (*fleet, error) {
	f := newFleet()
	f.strict = len(files) > 0
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
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return f, f.add(yamlFile{path, data})
	}
	return f, nil
}

// host is the host of a name, if the fleet has it.
func (f *fleet) host(name string) (remote.Host, bool) {
	i, ok := f.index[hostpattern.Fold(name)]
	if !ok {
		return remote.Host{}, false
	}
	return f.hosts[i], true
}

// members are the names of a group's hosts.
func (f *fleet) members(group string) ([]string, error) {
	if names, ok := f.groups[group]; ok {
		return names, nil
	}
	if len(f.files) == 0 {
		return nil, errors.New("no hosts.yaml is in use that could say who is in it; name one with --hostfile")
	}
	if group == everyone {
		return f.names(), nil
	}
	known := f.groupNames()
	return nil, fmt.Errorf("there is no such group in %s; %s", f.in(), hint("@"+group, known, "the groups are "+strings.Join(known, ", ")))
}

func (f *fleet) names() []string {
	names := make([]string, len(f.hosts))
	for i, h := range f.hosts {
		names[i] = h.Name
	}
	return names
}

// groupNames are the groups as they are written in a selection, sorted.
func (f *fleet) groupNames() []string {
	names := []string{"@" + everyone}
	for name := range f.groups {
		names = append(names, "@"+name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// in names the files of the fleet, for messages.
func (f *fleet) in() string { return strings.Join(f.files, ", ") }

// hint is the next step after a name that nobody knows.
func hint(name string, known []string, otherwise string) string {
	if near := strictyaml.Nearest(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	return otherwise
}
