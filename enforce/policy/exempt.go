package policy

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Exemptions are what no rule applies to. Each method also returns the entry that
// it found.
type Exemptions struct {
	users map[snapshot.Username]Source
	uids  map[snapshot.UID]Source
	uuids map[snapshot.GPUUUID]Source

	processes, environments, hosts, devices []exemption
}

// exemption is an entry of the file. Fields that its list doesn't use are empty.
type exemption struct {
	name  string // in which * is any text
	match *regexp.Regexp
	user  snapshot.Username
	host  text.HostPattern
	index text.HostPattern // of devices
	eid   snapshot.EnvID
	from  Source
}

// find returns the first entry that matches.
func find(list []exemption, matches func(*exemption) bool) (Source, bool) {
	for i := range list {
		if matches(&list[i]) {
			return list[i].from, true
		}
	}
	return Source{}, false
}

// User says whether a user is exempt.
func (e *Exemptions) User(user snapshot.Username) (Source, bool) {
	from, ok := e.users[user]
	return from, ok
}

// anyUser says whether any user is exempt by name, and returns the first entry.
func (e *Exemptions) anyUser() (first Source, found bool) {
	for _, from := range e.users {
		if !found || from.Place.Line < first.Place.Line {
			first, found = from, true
		}
	}
	return first, found
}

// UID says whether a numeric user id is exempt.
func (e *Exemptions) UID(uid snapshot.UID) (Source, bool) {
	from, ok := e.uids[uid]
	return from, ok
}

// Host says whether a host is exempt.
func (e *Exemptions) Host(host snapshot.Hostname) (Source, bool) {
	return find(e.hosts, func(h *exemption) bool { return h.host.Matches(string(host)) })
}

// commLength is how much of a process's name the kernel keeps: TASK_COMM_LEN
// less the NUL, see proc_pid_comm(5).
const commLength = 15

// Process says whether a process with this name is exempt; user is its owner, ""
// if that is not known. Users can give any name to their own processes.
func (e *Exemptions) Process(name string, user snapshot.Username) (Source, bool) {
	return find(e.processes, func(p *exemption) bool {
		cut := len(name) == commLength && strings.HasPrefix(p.name, name)
		return (cut || p.match.MatchString(name)) && (p.user == "" || p.user == user)
	})
}

// Environment says whether an environment is exempt, by its id on its host or
// by its owner and name.
func (e *Exemptions) Environment(host snapshot.Hostname, eid snapshot.EnvID, user snapshot.Username, name string) (Source, bool) {
	return find(e.environments, func(x *exemption) bool {
		if x.eid != "" {
			return x.eid == eid && x.host.Matches(string(host))
		}
		return x.user == user && x.match.MatchString(name)
	})
}

// Device says whether a device is exempt; uuid is "" if it is not known.
func (e *Exemptions) Device(host snapshot.Hostname, index snapshot.DeviceIndex, uuid snapshot.GPUUUID) (Source, bool) {
	if from, ok := e.uuids[uuid]; ok {
		return from, true
	}
	written := index.String()
	return find(e.devices, func(d *exemption) bool { return d.index.Matches(written) && d.host.Matches(string(host)) })
}

func (r *reader) readExempt(n *strictyaml.Node) {
	e := &r.file.Exemptions
	e.users, e.uids, e.uuids = map[snapshot.Username]Source{}, map[snapshot.UID]Source{}, map[snapshot.GPUUUID]Source{}
	n.Map(strictyaml.Keys{
		"users":        r.exemptUsers,
		"uids":         func(n *strictyaml.Node) { n.List(e.readUID) },
		"processes":    func(n *strictyaml.Node) { n.List(e.readProcess) },
		"environments": func(n *strictyaml.Node) { n.List(e.readEnvironment) },
		"hosts":        func(n *strictyaml.Node) { n.List(e.readHost) },
		"devices":      func(n *strictyaml.Node) { n.List(e.readDevice) },
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

// readProcess reads a name, or a mapping that also names the owner.
func (e *Exemptions) readProcess(n *strictyaml.Node) {
	p := exemption{from: exemptAt(n)}
	if n.IsMap() {
		n.Map(p.keys())
		if p.name == "" {
			n.Failf("the name of the process is missing; add `name:`")
		}
	} else {
		p.name = n.Text()
	}
	p.match = glob(p.name)
	e.processes = append(e.processes, p)
}

// keys are those of a name and its owner.
func (e *exemption) keys() strictyaml.Keys {
	return strictyaml.Keys{
		"name": func(n *strictyaml.Node) { e.name = n.Text() },
		"user": func(n *strictyaml.Node) { e.user = snapshot.Username(strings.Join(readUser(n), "")) },
	}
}

// readEnvironment reads an owner and a name, or an id on a host. A name alone is
// refused: any user could give it to an environment and would be exempt.
func (e *Exemptions) readEnvironment(n *strictyaml.Node) {
	x := exemption{from: exemptAt(n)}
	keys := x.keys()
	keys["eid"] = func(n *strictyaml.Node) { x.eid = snapshot.EnvID(n.Scalar()) }
	keys["host"] = func(n *strictyaml.Node) { x.host = readPattern(n, n.Text()) }
	n.Map(keys)
	byName := x.name != "" && x.user != "" && x.eid == "" && x.host.Count() == 0
	byID := x.eid != "" && x.host.Count() > 0 && x.name == "" && x.user == ""
	switch {
	case byName || byID:
		x.match = glob(x.name)
		e.environments = append(e.environments, x)
	case n.IsMap():
		n.Failf("an environment is identified by {user: bob, name: train}, or by {host: gpu-01, eid: 4711}; any user may choose a name")
	}
}

func (e *Exemptions) readHost(n *strictyaml.Node) {
	e.hosts = append(e.hosts, exemption{host: readPattern(n, n.Text()), from: exemptAt(n)})
}

// readUnprotected reads names of daemons that are protected by default. Any other
// name is refused: it has no effect, so it is a misspelling.
func (r *reader) readUnprotected(n *strictyaml.Node) {
	n.List(func(item *strictyaml.Node) {
		r.file.Unprotected = append(r.file.Unprotected, item.OneOf(enforce.Protected()...))
	})
}

// readDevice reads host:index, both with ranges, or the UUID of a device.
func (e *Exemptions) readDevice(n *strictyaml.Node) {
	written := n.Text()
	if strings.HasPrefix(written, "GPU-") || strings.HasPrefix(written, "MIG-") {
		e.uuids[snapshot.GPUUUID(written)] = exemptAt(n)
		return
	}
	colon := strings.LastIndexByte(written, ':')
	if colon < 0 {
		if written != "" {
			n.Failf("%q is not a device; write it as gpu-01:0, gpu-[01-04]:[0-3], or by its UUID, GPU-…", written)
		}
		return
	}
	index := readPattern(n, written[colon+1:])
	for _, i := range index.Expand() {
		if _, err := strconv.ParseUint(i, 10, 16); err != nil {
			n.Failf("%q is not a device index; write a number, as in gpu-01:0", i)
			return
		}
	}
	e.devices = append(e.devices, exemption{host: readPattern(n, written[:colon]), index: index, from: exemptAt(n)})
}

// readPattern parses a host pattern that is the whole written of n or a part of it.
func readPattern(n *strictyaml.Node, pattern string) text.HostPattern {
	if pattern == "" && n.IsText() {
		n.Failf("there is something missing; write it as gpu-01, or gpu-01:0 for a device")
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
