package inventory

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// fleet is the content of the YAML files: all hosts, and the groups.
type fleet struct {
	files  []string
	strict bool // other hosts are an error
	hosts  []remote.Host
	index  map[string]int      // of hosts, by folded name
	places map[string]string   // where a host or, after an @, a group is written
	groups map[string][]string // the names of a group's hosts, in order
}

// everyone is the group of all hosts, which every fleet has.
const everyone = "all"

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

// host is the host with a name, if the fleet has it.
func (f *fleet) host(name string) (remote.Host, bool) {
	i, ok := f.index[text.FoldHost(name)]
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
		return nil, errors.New("no hosts.yaml was found that could define it; name one with --hostfile")
	}
	if group == everyone {
		return names(f.hosts), nil
	}
	known := f.groupNames()
	return nil, fmt.Errorf("no such group in %s; %s", f.in(), text.Hint("@"+group, known, "the groups are "+strings.Join(known, ", ")))
}

// groupNames are the groups as they are written in a selection, in order.
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

// addGroups reads `groups:`. The hosts of the fleet must be known already.
func (f *fleet) addGroups(n *strictyaml.Node) {
	n.Each(func(key, _ *strictyaml.Node) {
		name := strings.TrimPrefix(key.Text(), "@")
		if place, ok := f.places["@"+name]; ok {
			key.Failf("group %s is defined at %s already; rename one of them", name, place)
		}
		f.places["@"+name] = key.Place().String()
	})
	maps.Copy(f.groups, strictyaml.Groups{Members: f.known, Other: f.members, Fold: text.FoldHost}.Read(n))
}

// known is the hosts of a pattern, each as it is written in `hosts:`.
func (f *fleet) known(item *strictyaml.Node) []string {
	list := expand(item)
	for i, name := range list {
		host, ok := f.host(name)
		if !ok {
			item.Failf("host %s is not in `hosts:`; %s", name, text.Hint(name, names(f.hosts), "add it there, or correct the name"))
			return nil
		}
		list[i] = host.Name
	}
	return list
}
