package strictyaml

import (
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// GroupReader reads a mapping of group names to lists. An item of a list is a word, or the name of another group after
// an @. Groups may contain each other in any order, but not in a cycle.
type GroupReader struct {
	// Members returns the members that an item without @ names. It records its errors at the item.
	Members func(item *Node) []string
	// Other returns the members of a group that the mapping doesn't define, or an error that ends with the next step.
	Other func(name string) ([]string, error)
	// Fold converts a member to the form in which members are compared. Each member is in a group once.
	Fold func(member string) string

	written map[string]*Node
	done    map[string][]string
	path    []string // the groups that are being resolved, outermost first
}

// Read returns the members of each group in a mapping.
func (g GroupReader) Read(n *Node) map[string][]string {
	g.written, g.done = map[string]*Node{}, map[string][]string{}
	var order []string
	n.Each(func(key, value *Node) {
		name := strings.TrimPrefix(key.Text(), "@")
		switch {
		case !text.IsMadeOf(name, "-_.") || name == "" || name[0] == '-':
			key.Failf("%q is not a valid group name; use letters, digits, '-', '_' and '.'", name)
		case g.written[name] != nil:
			key.Failf("group %s is defined twice; remove one of the definitions", name)
		default:
			g.written[name] = value
			order = append(order, name)
		}
	})
	for _, name := range order {
		g.resolve(name)
	}
	return g.done
}

func (g *GroupReader) resolve(name string) {
	if _, done := g.done[name]; done {
		return
	}
	g.path = append(g.path, name)
	var members []string
	seen := map[string]bool{}
	g.written[name].List(func(item *Node) {
		for _, member := range g.membersOf(item) {
			if key := g.Fold(member); !seen[key] {
				seen[key] = true
				members = append(members, member)
			}
		}
	})
	g.done[name] = members
	g.path = g.path[:len(g.path)-1]
}

func (g *GroupReader) membersOf(item *Node) []string {
	name, ok := strings.CutPrefix(item.Text(), "@")
	if !ok {
		return g.Members(item)
	}
	if slices.Contains(g.path, name) {
		cycle := append(slices.Clone(g.path), name)
		item.Failf("group %s contains itself: %s; remove one of these", name, strings.Join(cycle, " > "))
		return nil
	}
	if _, ok := g.written[name]; ok {
		g.resolve(name)
		return g.done[name]
	}
	members, err := g.Other(name)
	if err != nil {
		item.Failf("@%s: %v", name, err)
	}
	return members
}
