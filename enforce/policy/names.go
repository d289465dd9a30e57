package policy

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// Reference is a name in a policy of something that is defined elsewhere: an account, or
// a host or a label of the inventory.
type Reference struct {
	Kind  string // ToUser and so on
	Name  string // of a label its key
	Value string // of a label
	Place strictyaml.Place
}

// The kinds of references.
const (
	ToUser  = "user"
	ToHost  = "host" // may have ranges, or be a group as @name
	ToLabel = "label"
	// ToUnixGroup is a group of the directory, and ToModel a glob of names of GPUs.
	ToUnixGroup = "group"
	ToModel     = "model"
)

// References lists the users, hosts and labels of a policy, in the order of the file. Its
// error is that of Parse.
func References(name string, data []byte) ([]Reference, error) {
	r := read(name, data, nil)
	slices.SortStableFunc(r.references, func(a, b Reference) int {
		return cmp.Or(cmp.Compare(a.Place.Line, b.Place.Line), cmp.Compare(a.Place.Column, b.Place.Column))
	})
	return r.references, r.doc.Err()
}

// refers notes what a node names.
func (r *reader) refers(n *strictyaml.Node, to Reference) {
	to.Place = n.Place()
	r.references = append(r.references, to)
}
