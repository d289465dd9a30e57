package inventory

import (
	"maps"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/hostpattern"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// addGroups reads `groups:` into the fleet, whose hosts are known already.
func (f *fleet) addGroups(n *strictyaml.Node) {
	n.Each(func(key, _ *strictyaml.Node) {
		name := strings.TrimPrefix(key.Text(), "@")
		if place, ok := f.places["@"+name]; ok {
			key.Failf("group %s stands at %s already; rename one of them", name, place)
		}
		f.places["@"+name] = key.Place().String()
	})
	maps.Copy(f.groups, strictyaml.Groups{Members: f.known, Other: f.members, Fold: hostpattern.Fold}.Read(n))
}

// known is the hosts of a pattern, each as it is written in `hosts:`.
func (f *fleet) known(item *strictyaml.Node) []string {
	names := expand(item)
	for i, name := range names {
		host, ok := f.host(name)
		if !ok {
			item.Failf("host %s is not in `hosts:`; %s", name, hint(name, f.names(), "add it there, or correct the name"))
			return nil
		}
		names[i] = host.Name
	}
	return names
}
