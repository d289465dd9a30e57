package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/safety"
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

	processes, environments, hosts, devices, containers []exemptEntry
}

// exemptEntry is an entry of the file. Fields that its list doesn't use are empty.
type exemptEntry struct {
	name, image       string // in which * is any text
	match, matchImage *regexp.Regexp
	key, value        string // of a container's label

	user  snapshot.Username
	host  text.HostPattern
	index text.HostPattern // of devices, with the entry as name
	from  Source
}

// find returns the first entry that matches.
func find(list []exemptEntry, matches func(*exemptEntry) bool) (Source, bool) {
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
	return find(e.hosts, func(h *exemptEntry) bool { return h.host.Matches(string(host)) })
}

// commLength is how much of a process's name the kernel keeps: TASK_COMM_LEN
// less the NUL, see proc_pid_comm(5).
const commLength = 15

// Process says whether a process with this name is exempt; user is its owner, ""
// if that is not known. Users can give any name to their own processes.
func (e *Exemptions) Process(name string, user snapshot.Username) (Source, bool) {
	return find(e.processes, func(p *exemptEntry) bool {
		cut := len(name) == commLength && strings.HasPrefix(p.name, name)
		return (cut || p.match.MatchString(name)) && (p.user == "" || p.user == user)
	})
}

// Environment says whether an environment is exempt, by its owner and name.
func (e *Exemptions) Environment(user snapshot.Username, name string) (Source, bool) {
	return find(e.environments, func(x *exemptEntry) bool { return x.user == user && x.match.MatchString(name) })
}

// indices are the devices of a host that are exempt by an index, each once, and the entries of the file.
func (e *Exemptions) indices(host snapshot.Hostname) (list []enforce.ExemptGPU, from []Source) {
	for i := range e.devices {
		entry := &e.devices[i]
		if !entry.host.Matches(string(host)) {
			continue
		}
		for _, written := range entry.index.Expand() {
			n, _ := strconv.Atoi(written) // which was checked
			index := snapshot.DeviceIndex(n)
			if !slices.ContainsFunc(list, func(other enforce.ExemptGPU) bool { return other.Index == index }) {
				list, from = append(list, enforce.ExemptGPU{Index: index, Entry: entry.name}), append(from, entry.from)
			}
		}
	}
	return list, from
}

// Container says whether the container of a process is exempt. Only one of root's runtime
// can be: a user of a rootless one would choose its name and labels. What the runtime did
// not tell may be what an entry names.
func (e *Exemptions) Container(p *snapshot.Process) (Source, bool) {
	if !p.OfRootsRuntime() {
		return Source{}, false
	}
	return find(e.containers, func(x *exemptEntry) bool { return x.isOf(p.ContainerInfo) })
}

// isOf compares an entry with what is known of a container. An entry that names an image or a label never
// matches one that is known only by its cgroup (LXC, systemd-nspawn). Of one that its runtime did not describe
// these are unknown, and may be those of the entry.
func (x *exemptEntry) isOf(c *snapshot.ContainerInfo) bool {
	if c.Unknown {
		return x.name == "" || c.Name == "" || x.match.MatchString(c.Name)
	}
	label, labelled := c.Labels[x.key]
	return (x.name == "" || x.match.MatchString(c.Name)) &&
		(x.image == "" || c.Image != "" && x.matchImage.MatchString(c.Image)) &&
		(x.key == "" || labelled && label == x.value || !labelled && c.LabelsCut)
}

// readContainer reads a name, an image and a label, of which one has to be there.
func (e *Exemptions) readContainer(n *strictyaml.Node) {
	x, labelled := exemptEntry{from: exemptAt(n)}, false
	n.Map(strictyaml.Keys{
		"name":  func(n *strictyaml.Node) { x.name = strings.TrimPrefix(n.Text(), "/") },
		"image": func(n *strictyaml.Node) { x.image = n.Text() },
		"label": func(n *strictyaml.Node) {
			key, value, found := strings.Cut(n.Text(), "=")
			if !found || key == "" {
				n.Failf("%q is not a label; write it as KEY=VALUE", n.Text())
			}
			x.key, x.value, labelled = key, value, true
		},
	})
	if n.IsMap() && x.name == "" && x.image == "" && !labelled {
		n.Failf("a container is identified by its name, image or label, as in {name: web, image: \"lab/*\", label: " +
			"team=vision}")
	}
	x.match, x.matchImage = glob(x.name), glob(x.image)
	e.containers = append(e.containers, x)
}

// Aliases are the names that users have besides the one under which rules know them: an
// account of a directory can have several, and so can a uid in /etc/passwd. A rule for one of
// them holds for all, since they are one user.
type Aliases map[snapshot.Username]snapshot.Username

// Name is the name under which rules know a user.
func (a Aliases) Name(user snapshot.Username) snapshot.Username {
	if name, other := a[user]; other {
		return name
	}
	return user
}

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
