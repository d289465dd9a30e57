package policy

import (
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// Parse reads a policy file; name is for messages and sources. Its error is a
// *strictyaml.ParseError, one line with the first problem and its place.
func Parse(name string, data []byte) (*File, error) { return ParseFor(name, data, nil) }

// ParseFor is Parse for these accounts.
func ParseFor(name string, data []byte, accounts Accounts) (*File, error) {
	file, doc := parse(name, data, accounts)
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return file, nil
}

// Check returns all problems of a policy file, one line for each, or nil.
func Check(name string, data []byte) error {
	_, doc := parse(name, data, nil)
	return doc.All()
}

// parse reads the parts in the order in which they refer to each other,
// whatever their order in the file.
func parse(name string, data []byte, accounts Accounts) (*File, *strictyaml.Document) {
	r := reader{file: Default(), doc: strictyaml.Parse(name, data)}
	r.file.Accounts = accounts
	parts := []struct {
		key  string
		read func(*strictyaml.Node)
	}{
		{"timezone", r.readZone},
		{"groups", r.readGroups},
		{"schedules", r.readSchedules},
		{"defaults", func(n *strictyaml.Node) { r.readSettings(n, &r.file.Defaults, 0, "defaults") }},
		{"overrides", func(n *strictyaml.Node) { n.List(r.readOverride) }},
		{"exempt", r.readExempt},
		{"unprotected", r.readUnprotected},
		{"limits", r.readLimits},
		{"unreachable", r.readUnreachable},
		{"tell-users", r.readTellUsers},
		{"hooks", func(n *strictyaml.Node) { n.List(r.readHook) }},
		{"mail", r.readMail},
		{"templates", r.readTemplates},
	}
	nodes := map[string]*strictyaml.Node{}
	keys := strictyaml.Keys{}
	for _, part := range parts {
		keys[part.key] = func(n *strictyaml.Node) { nodes[part.key] = n }
	}
	r.doc.Root().Map(keys, strictyaml.Keys{"fair-share": func(n *strictyaml.Node) { r.ignore(n, "fair-share") }})
	for _, part := range parts {
		if n := nodes[part.key]; n != nil {
			part.read(n)
		}
	}
	if n := nodes["overrides"]; n != nil && !r.failed() {
		r.checkOverlaps(n)
	}
	return r.file, r.doc
}

func (r *reader) readLimits(n *strictyaml.Node) {
	keys := strictyaml.Keys{
		"over-limit": func(n *strictyaml.Node) {
			r.file.Limits.Throttle = onOff(n.OneOf("hold", "throttle") == "throttle", Source{n.Place(), "limits"})
		},
	}
	for _, limit := range r.file.Limits.each() {
		keys[limit.key] = func(n *strictyaml.Node) {
			v := n.Int(0, limit.max)
			*limit.at = Value[int]{On: v > 0, Value: v, From: Source{n.Place(), "limits"}}
		}
	}
	n.Map(keys)
}

func (r *reader) readUnreachable(n *strictyaml.Node) {
	value := Unreachable(n.OneOf(string(IgnoreMissing), string(PauseCaps)))
	r.file.Unreachable = Value[Unreachable]{On: true, Value: value, From: Source{n.Place(), "the file"}}
}

func (r *reader) readTellUsers(n *strictyaml.Node) {
	r.file.TellUsers = onOff(n.Bool(), Source{n.Place(), "the file"})
}
