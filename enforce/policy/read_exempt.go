package policy

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (r *reader) readExempt(n *strictyaml.Node) {
	e := &r.file.Exemptions
	e.users, e.uids, e.uuids = map[snapshot.Username]Source{}, map[snapshot.UID]Source{}, map[snapshot.GPUUUID]Source{}
	n.Map(strictyaml.Keys{
		"users":        r.exemptUsers,
		"uids":         func(n *strictyaml.Node) { n.List(e.readUID) },
		"processes":    func(n *strictyaml.Node) { n.List(r.exemptProcess) },
		"containers":   func(n *strictyaml.Node) { n.List(e.readContainer) },
		"environments": func(n *strictyaml.Node) { n.List(r.exemptEnvironment) },
		"hosts":        func(n *strictyaml.Node) { n.List(r.exemptHost) },
		"devices":      func(n *strictyaml.Node) { n.List(r.exemptDevice) },
	})
}

func exemptAt(n *strictyaml.Node) Source { return Source{Place: n.Place(), By: "exempt"} }

func (r *reader) exemptUsers(n *strictyaml.Node) {
	n.List(func(item *strictyaml.Node) {
		users, _ := r.readUserOrGroup(item)
		for _, user := range users {
			r.file.Exemptions.users[snapshot.Username(user)] = exemptAt(item)
		}
	})
}

func (e *Exemptions) readUID(n *strictyaml.Node) {
	e.uids[snapshot.UID(n.Int(0, 1<<32-2))] = exemptAt(n)
}

// exemptProcess reads a name, or a mapping that also names the owner.
func (r *reader) exemptProcess(n *strictyaml.Node) {
	p := exemptEntry{from: exemptAt(n)}
	if n.IsMap() {
		n.Map(r.owned(&p))
		if p.name == "" {
			n.Failf("the name of the process is missing; add `name:`")
		}
	} else {
		p.name = n.Text()
	}
	p.match = glob(p.name)
	r.file.Exemptions.processes = append(r.file.Exemptions.processes, p)
}

// owned are the keys of a name and its owner.
func (r *reader) owned(e *exemptEntry) strictyaml.Keys {
	return strictyaml.Keys{
		"name": func(n *strictyaml.Node) { e.name = n.Text() },
		"user": func(n *strictyaml.Node) { e.user = snapshot.Username(strings.Join(r.readUser(n), "")) },
	}
}

// exemptEnvironment reads an owner and a name. A name alone is refused: any user could give it to an environment and
// would be exempt. So would be a user who asks for an id on a host while it is free: that form does nothing any more.
func (r *reader) exemptEnvironment(n *strictyaml.Node) {
	x, host, eid := exemptEntry{from: exemptAt(n)}, "", ""
	keys := r.owned(&x)
	keys["eid"] = func(n *strictyaml.Node) { eid = n.Scalar() }
	keys["host"] = func(n *strictyaml.Node) { host = n.Text() }
	n.Map(keys)
	switch {
	case x.name != "" && x.user != "" && eid == "" && host == "":
		x.match = glob(x.name)
		r.file.Exemptions.environments = append(r.file.Exemptions.environments, x)
	case eid != "" && host != "" && x.name == "" && x.user == "":
		r.ignore(fmt.Sprintf("{host: %s, eid: %s}", host, eid),
			"write {user: bob, name: train}: any user may ask for an id that is free")(n)
	case n.IsMap():
		n.Failf("an environment is identified by {user: bob, name: train}; any user may choose a name")
	}
}

func (r *reader) exemptHost(n *strictyaml.Node) {
	e := &r.file.Exemptions
	e.hosts = append(e.hosts, exemptEntry{host: r.readHosts(n, n.Text()), from: exemptAt(n)})
}

// readUnprotected reads names of daemons that are protected by default. Any other
// name is refused: it has no effect, so it is a misspelling.
func (r *reader) readUnprotected(n *strictyaml.Node) {
	n.List(func(item *strictyaml.Node) {
		r.file.Unprotected = append(r.file.Unprotected, item.OneOf(safety.Protected()...))
	})
}

// exemptDevice reads host:index, both with ranges, or the UUID of a device.
func (r *reader) exemptDevice(n *strictyaml.Node) {
	e, written := &r.file.Exemptions, n.Text()
	if isUUID(written) {
		e.uuids[snapshot.GPUUUID(written)] = exemptAt(n)
		return
	}
	colon := strings.LastIndexByte(written, ':')
	if colon < 0 {
		if written != "" {
			n.Failf("%q is not a GPU; write it as gpu-01:0, gpu-[01-04]:[0-3], or by its UUID, GPU-…", written)
		}
		return
	}
	index := readPattern(n, written[colon+1:])
	for _, i := range index.Expand() {
		if _, err := strconv.ParseUint(i, 10, 16); err != nil {
			n.Failf("%q is not a GPU index; write a number, as in gpu-01:0", i)
			return
		}
	}
	e.devices = append(e.devices, exemptEntry{
		name: written, host: r.readHosts(n, written[:colon]), index: index, from: exemptAt(n),
	})
}

// isUUID says whether a device is named by its UUID.
func isUUID(device string) bool {
	return strings.HasPrefix(device, "GPU-") || strings.HasPrefix(device, "MIG-")
}

// readHosts is readPattern for the names of hosts.
func (r *reader) readHosts(n *strictyaml.Node, pattern string) text.HostPattern {
	r.refers(n, Reference{Kind: ToHost, Name: pattern})
	return readPattern(n, pattern)
}

// readPattern parses a host pattern that is the whole written of n or a part of it.
func readPattern(n *strictyaml.Node, pattern string) text.HostPattern {
	if pattern == "" && n.IsText() {
		n.Failf("there is something missing; write it as gpu-01, or gpu-01:0 for a GPU")
	}
	if pattern == "" {
		return text.HostPattern{}
	}
	p, err := text.ParseHosts(pattern)
	if err != nil {
		n.Failf("%v", err)
	}
	return p
}

// glob matches whole names; * is any text.
func glob(name string) *regexp.Regexp {
	return regexp.MustCompile(`(?s)^` + strings.ReplaceAll(regexp.QuoteMeta(name), `\*`, `.*`) + `$`)
}
