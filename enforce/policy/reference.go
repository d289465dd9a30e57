package policy

import (
	"strings"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// Reference is a name in a policy of something that is defined elsewhere: an account, or
// a host or a label of the inventory.
type Reference struct {
	Kind  ReferenceKind
	Name  string // of a label its key
	Value string // of a label
	Place strictyaml.Place
}

// ReferenceKind is what a Reference names.
type ReferenceKind string

// The kinds of references.
const (
	ToUser  ReferenceKind = "user"
	ToHost  ReferenceKind = "host" // may have ranges
	ToLabel ReferenceKind = "label"
)

// References lists the users, hosts and labels of a policy, in the order of the file. Its
// error is that of Parse.
func References(name string, data []byte) ([]Reference, error) {
	if _, err := Parse(name, data); err != nil {
		return nil, err
	}
	var r referrer
	parts := map[string]func(*strictyaml.Node){
		"groups": func(n *strictyaml.Node) { n.Each(func(_, group *strictyaml.Node) { group.List(r.user) }) },
		"overrides": func(n *strictyaml.Node) {
			n.List(func(n *strictyaml.Node) {
				each(n, map[string]func(*strictyaml.Node){"users": listOf(r.user), "hosts": listOf(r.host), "labels": r.labels})
			})
		},
		"exempt": func(n *strictyaml.Node) {
			owned := listOf(func(n *strictyaml.Node) { each(n, map[string]func(*strictyaml.Node){"user": r.user, "host": r.host}) })
			each(n, map[string]func(*strictyaml.Node){
				"users": listOf(r.user), "hosts": listOf(r.host), "devices": listOf(r.device), "processes": owned, "environments": owned,
			})
		},
		"mail": func(n *strictyaml.Node) {
			each(n, map[string]func(*strictyaml.Node){
				"opt-out":   listOf(r.user),
				"addresses": func(n *strictyaml.Node) { n.Each(func(user, _ *strictyaml.Node) { r.user(user) }) },
			})
		},
	}
	each(strictyaml.Parse(name, data).Root(), parts)
	return r.list, nil
}

// each reads the values of some keys of a mapping; anything else is left alone, since Parse
// has checked it.
func each(n *strictyaml.Node, keys map[string]func(*strictyaml.Node)) {
	if !n.IsMap() {
		return
	}
	n.Each(func(key, value *strictyaml.Node) {
		if read := keys[key.Text()]; read != nil {
			read(value)
		}
	})
}

func listOf(read func(*strictyaml.Node)) func(*strictyaml.Node) {
	return func(n *strictyaml.Node) {
		if n.IsList() {
			n.List(read)
		}
	}
}

// referrer collects references.
type referrer struct{ list []Reference }

// user adds a user; groups are defined in the policy itself.
func (r *referrer) user(n *strictyaml.Node) {
	if name := n.Text(); !strings.HasPrefix(name, "@") {
		r.list = append(r.list, Reference{Kind: ToUser, Name: name, Place: n.Place()})
	}
}

func (r *referrer) host(n *strictyaml.Node) {
	r.list = append(r.list, Reference{Kind: ToHost, Name: n.Text(), Place: n.Place()})
}

// device adds the host of HOST:INDEX.
func (r *referrer) device(n *strictyaml.Node) {
	if colon := strings.LastIndexByte(n.Text(), ':'); colon > 0 && !isUUID(n.Text()) {
		r.list = append(r.list, Reference{Kind: ToHost, Name: n.Text()[:colon], Place: n.Place()})
	}
}

func (r *referrer) labels(n *strictyaml.Node) {
	n.Each(func(key, value *strictyaml.Node) {
		r.list = append(r.list, Reference{Kind: ToLabel, Name: key.Text(), Value: value.Scalar(), Place: key.Place()})
	})
}
