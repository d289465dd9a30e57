package policy

import (
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// readOverride reads one item of `overrides:`.
func (r *reader) readOverride(n *strictyaml.Node) {
	o := Override{Place: n.Place()}
	var set *strictyaml.Node
	before := r.doc.Errors()
	failed := func() bool { return r.doc.Errors() > before }
	n.Map(strictyaml.Keys{
		"hosts":  func(n *strictyaml.Node) { r.readHostList(n, &o) },
		"labels": func(n *strictyaml.Node) { o.Labels = r.readLabels(n) },
		"users":  func(n *strictyaml.Node) { r.readUsers(n, &o) },
		"when":   func(n *strictyaml.Node) { o.When = r.readWhen(n) },
		"set":    func(n *strictyaml.Node) { set = n },
	})
	switch {
	case !n.IsMap() || set == nil && failed(): // it may be under a misspelt key
		return
	case set == nil:
		n.Failf("the override sets nothing; add `set:` with the settings that differ")
		return
	case len(o.Hosts)+len(o.Labels)+len(o.Users)+len(o.Members) == 0 && o.When == nil && !failed():
		n.Failf("the override applies to all users and hosts at all times; name hosts, labels, users or " +
			"when, or move it to `defaults:`")
	}
	r.readSettings(set, &o.Set, o.scope(), o.String())
	for i := range r.file.Overrides {
		if minute, key, found := o.overlap(&r.file.Overrides[i]); found && !failed() {
			n.Failf("on %s both schedule %s here and schedule %s at %s set %s for the same hosts and users; write "+
				"hours that do not overlap", clock(minute), o.When.Name, r.file.Overrides[i].When.Name,
				r.file.Overrides[i].Place, key)
		}
	}
	r.file.Overrides = append(r.file.Overrides, o)
}

func (r *reader) readLabels(n *strictyaml.Node) map[string]string {
	labels := map[string]string{}
	n.Each(func(key, value *strictyaml.Node) {
		name, wanted := key.Text(), value.Scalar() // each reports what is wrong with it
		labels[name] = wanted
		r.refers(key, Reference{Kind: ToLabel, Name: name, Value: wanted})
	})
	return labels
}

// scope is what the override selects by, apart from the time.
func (o *Override) scope() enforce.Scope {
	var s enforce.Scope
	if len(o.Hosts)+len(o.Labels) > 0 {
		s |= enforce.ByHost
	}
	if len(o.writtenUsers) > 0 {
		s |= enforce.ByUser
	}
	return s
}

// readUsers reads a list of users and groups into an override.
func (r *reader) readUsers(n *strictyaml.Node, o *Override) {
	n.List(func(item *strictyaml.Node) {
		users, isGroup := r.readUserOrGroup(item)
		if isGroup {
			o.Members = append(o.Members, users...)
		} else {
			o.Users = append(o.Users, users...)
		}
		if isGroup || len(users) > 0 {
			o.writtenUsers = append(o.writtenUsers, item.Text())
		}
	})
}

// readHostList reads a list of host patterns into an override.
func (r *reader) readHostList(n *strictyaml.Node, o *Override) {
	n.List(func(item *strictyaml.Node) {
		if text := item.Text(); text != "" {
			o.Hosts = append(o.Hosts, r.readHosts(item, text))
			o.writtenHosts = append(o.writtenHosts, text)
		}
	})
}
