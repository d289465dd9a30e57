package strictyaml

import (
	"slices"
	"strings"
)

// Groups says how a mapping of names to lists is read, whose items are words or
// other groups, written @name.
type Groups struct {
	// Members is what an item that names no group stands for. It reports its
	// errors at the item.
	Members func(item *Node) []string
	// Other is the members of a group that is defined elsewhere, or the error
	// that there is none, which ends with the next step.
	Other func(name string) ([]string, error)
	// Fold is the form in which members are compared; each stands in a group
	// once.
	Fold func(member string) string
}

// grouping is a mapping of groups that is being read. They may name each other
// in any order but not in a circle.
type grouping struct {
	Groups
	written map[string]*Node
	done    map[string][]string
	path    []string // the groups that are being resolved, outermost first
}

// Read returns the members of each group in a mapping.
func (g Groups) Read(n *Node) map[string][]string {
	r := grouping{Groups: g, written: map[string]*Node{}, done: map[string][]string{}}
	var order []string
	n.Each(func(key, value *Node) {
		name := strings.TrimPrefix(key.Text(), "@")
		switch {
		case strings.ContainsFunc(name, strange) || name == "" || name[0] == '-':
			key.Failf("%q is no name for a group; use letters, digits, '-', '_' and '.'", name)
		case r.written[name] != nil:
			key.Failf("group %s stands twice; remove one of them", name)
		default:
			r.written[name] = value
			order = append(order, name)
		}
	})
	for _, name := range order {
		r.resolve(name)
	}
	return r.done
}

// strange is what names of groups are not made of.
func strange(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
}

func (g *grouping) resolve(name string) {
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

func (g *grouping) membersOf(item *Node) []string {
	name, ok := strings.CutPrefix(item.Text(), "@")
	if !ok {
		return g.Members(item)
	}
	if slices.Contains(g.path, name) {
		circle := append(slices.Clone(g.path), name)
		item.Failf("group %s contains itself: %s; remove one of these", name, strings.Join(circle, " > "))
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
