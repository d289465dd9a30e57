package inventory

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/remote"
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

// maxHosts is how many hosts a selection may have before exclusion.
const maxHosts = 100_000

func names(hosts []remote.Host) []string {
	list := make([]string, len(hosts))
	for i, h := range hosts {
		list[i] = h.Name
	}
	return list
}
