package inventory

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// selected are hosts in order, with the user and port written with the name.
type selected struct {
	hosts []remote.Host
	index map[string]int // by folded name
}

func selectHosts(words []word, f *fleet) (*selected, error) {
	s := &selected{index: map[string]int{}}
	if len(words) == 0 {
		for i, h := range f.hosts {
			s.index[text.FoldHost(h.Name)] = i
			s.hosts = append(s.hosts, remote.Host{Name: h.Name})
		}
	}
	for _, w := range words {
		hosts, err := f.expand(w, nil)
		if err != nil {
			return nil, usagef("%s: %w", w.place, err)
		}
		for _, h := range hosts {
			if known, ok := f.host(h.Name); ok {
				h.Name = known.Name // as the file writes it
			} else if f.strict {
				return nil, usagef("%s: host %s is not in %s; %s", w.place, h.Name, f.in(),
					text.Hint(h.Name, names(f.hosts), "add it there, or correct the name"))
			}
			if err := s.add(h); err != nil {
				return nil, usagef("%s: %w", w.place, err)
			}
		}
	}
	return s, nil
}

// add adds a host, or its user and port. Two users or ports are an error, as one would be ignored.
func (s *selected) add(h remote.Host) error {
	key := text.FoldHost(h.Name)
	i, ok := s.index[key]
	if !ok {
		if len(s.hosts) == maxHosts {
			return fmt.Errorf("that makes more than %d hosts; write a smaller range", maxHosts)
		}
		s.index[key] = len(s.hosts)
		s.hosts = append(s.hosts, h)
		return nil
	}
	old := &s.hosts[i]
	if old.User != "" && h.User != "" && old.User != h.User {
		return fmt.Errorf("host %s is named with the users %s and %s; name it once", h.Name, old.User, h.User)
	}
	if old.Port != 0 && h.Port != 0 && old.Port != h.Port {
		return fmt.Errorf("host %s is named with the ports %d and %d; for two machines give each a name and "+
			"`address:` in hosts.yaml", h.Name, old.Port, h.Port)
	}
	old.User, old.Port = cmp.Or(old.User, h.User), cmp.Or(old.Port, h.Port)
	return nil
}

// withSettings applies settings: those with the name win over -l, and that over the file.
func (s *selected) withSettings(f *fleet, user string) []remote.Host {
	hosts := make([]remote.Host, len(s.hosts))
	for i, written := range s.hosts {
		host, ok := f.host(written.Name)
		if !ok {
			host.Name = written.Name
		}
		host.User, host.Port = cmp.Or(written.User, user, host.User), cmp.Or(written.Port, host.Port)
		hosts[i] = host
	}
	return hosts
}

// Known returns the hosts and groups of a selection's YAML files, or else of the default file.
func Known(sel Selection, open Open) (hosts []remote.Host, groups map[string][]string, err error) {
	_, files, err := sel.read(open)
	if err != nil {
		return nil, nil, err
	}
	f, err := sel.findFleet(files, true, open)
	if err != nil || len(f.files) == 0 {
		return nil, nil, err
	}
	groups = maps.Clone(f.groups)
	groups[everyone] = names(f.hosts)
	return f.hosts, groups, nil
}

type fleet struct {
	files  []string
	strict bool // other hosts are an error
	hosts  []remote.Host
	index  map[string]int      // by folded name
	places map[string]string   // where a host or (after an @) a group is defined
	groups map[string][]string // host names of each group, in order
}

func newFleet() *fleet {
	return &fleet{index: map[string]int{}, places: map[string]string{}, groups: map[string][]string{}}
}

const everyone = "all" // the predefined group of all hosts

func (f *fleet) host(name string) (h remote.Host, ok bool) {
	i, ok := f.index[text.FoldHost(name)]
	if ok {
		h = f.hosts[i]
	}
	return h, ok
}

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
	known := []string{"@" + everyone}
	for name := range f.groups {
		known = append(known, "@"+name)
	}
	slices.Sort(known)
	known = slices.Compact(known)
	return nil, fmt.Errorf("no such group in %s; %s", f.in(),
		text.Hint("@"+group, known, "the groups are "+strings.Join(known, ", ")))
}

func (f *fleet) in() string { return strings.Join(f.files, ", ") }

const maxHosts = 100_000 // per selection, before exclusion

func names(hosts []remote.Host) []string {
	list := make([]string, len(hosts))
	for i, h := range hosts {
		list[i] = h.Name
	}
	return list
}
