package policy

import (
	"fmt"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// Ignored is a key that does nothing any more. The rest of the file applies: a policy that can't be
// read would stop enforcement.
type Ignored struct {
	Key     string
	Place   strictyaml.Place
	Message string // what to use instead, in one line
}

// ignore reads the value of a key that does nothing any more.
func (r *reader) ignore(n *strictyaml.Node, key string) {
	r.file.Ignored = append(r.file.Ignored, Ignored{Key: key, Place: n.Place(), Message: fmt.Sprintf(
		"%s is ignored, and the next version refuses it: remove it, and use overrides with a schedule, or genv remote exempt --for", key)})
}
