package inventory

import (
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/hostpattern"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// grouping resolves the groups of a file, which may name each other in any
// order but not in a circle.
type grouping struct {
	fleet   *fleet
	written map[string]*strictyaml.Node
	path    []string // the groups that are being resolved, outermost first
}

// addGroups reads `groups:` into the fleet, whose hosts are known already.
func (f *fleet) addGroups(n *strictyaml.Node) {
	g := grouping{fleet: f, written: map[string]*strictyaml.Node{}}
	var order []string
	n.Each(func(key, value *strictyaml.Node) {
		name := strings.TrimPrefix(key.Text(), "@")
		place, ok := f.places["@"+name]
		switch {
		case ok:
			key.Failf("group %s stands at %s already; rename one of them", name, place)
		case !isGroupName(name):
			key.Failf("%q is no name for a group; use letters, digits, '-', '_' and '.'", name)
		default:
			f.places["@"+name] = key.Place().String()
			g.written[name] = value
			order = append(order, name)
		}
	})
	for _, name := range order {
		g.resolve(name)
	}
}

func isGroupName(name string) bool {
	p, err := hostpattern.Parse(name)
	return err == nil && p.Count() == 1 && !strings.ContainsAny(name, "[]:")
}

// resolve makes the list of a group's hosts, each once.
func (g *grouping) resolve(name string) {
	if _, done := g.fleet.groups[name]; done {
		return
	}
	g.path = append(g.path, name)
	defer func() { g.path = g.path[:len(g.path)-1] }()
	var names []string
	seen := map[string]bool{}
	g.written[name].List(func(item *strictyaml.Node) {
		for _, member := range g.members(item) {
			if key := hostpattern.Fold(member); !seen[key] {
				seen[key] = true
				names = append(names, member)
			}
		}
	})
	g.fleet.groups[name] = names
}

// members are the hosts that an item of a group stands for.
func (g *grouping) members(item *strictyaml.Node) []string {
	group, ok := strings.CutPrefix(item.Text(), "@")
	if !ok {
		return g.hostsOf(item)
	}
	if slices.Contains(g.path, group) {
		circle := append(slices.Clone(g.path), group)
		item.Failf("group %s contains itself: %s; remove one of these", group, strings.Join(circle, " > "))
		return nil
	}
	if _, ok := g.written[group]; ok {
		g.resolve(group)
	}
	names, err := g.fleet.members(group)
	if err != nil {
		item.Failf("@%s: %v", group, err)
	}
	return names
}

func (g *grouping) hostsOf(item *strictyaml.Node) []string {
	names := expand(item)
	for i, name := range names {
		host, ok := g.fleet.host(name)
		if !ok {
			item.Failf("host %s is not in `hosts:`; %s", name, hint(name, g.fleet.names(), "add it there, or correct the name"))
			return nil
		}
		names[i] = host.Name
	}
	return names
}
