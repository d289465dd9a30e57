package policy

import (
	"cmp"
	"fmt"
	"maps"
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

type exemptions struct {
	users   map[snapshot.Username]Source
	uids    map[snapshot.UID]Source
	uuids   map[snapshot.GPUUUID]Source
	devices []exemptIndices
	// entries are hosts, processes, environments and containers. Each names a part of a subject, or returns "". from
	// says where each is written.
	entries []func(enforce.Subject) string
	from    []Source
}

type exemptIndices struct {
	written     string
	host, index text.HostPattern
	from        Source
}

func (e *exemptions) find(s enforce.Subject, uid *snapshot.UID) (what string, from Source) {
	if from, ok := e.users[s.User]; ok {
		return "user " + string(s.User), from
	}
	if uid != nil {
		if from, ok := e.uids[*uid]; ok {
			return fmt.Sprintf("uid %d", *uid), from
		}
	}
	if s.Process != nil && s.Process.UserUnknown && len(e.users) > 0 { // it may be an exempt one
		inFile := func(a, b Source) int {
			return cmp.Or(a.Place.Line-b.Place.Line, a.Place.Column-b.Place.Column)
		}
		return "a user whose name could not be looked up", slices.MinFunc(slices.Collect(maps.Values(e.users)), inFile)
	}
	for i, names := range e.entries {
		if what := names(s); what != "" {
			return what, e.from[i]
		}
	}
	if s.Device != nil {
		if from, ok := e.uuids[s.Device.UUID]; ok {
			return "device", from
		}
	}
	return "", Source{}
}

// indices are a host's devices that are exempt by index, each once, and their entries.
func (e *exemptions) indices(host snapshot.Hostname) (list []enforce.ExemptGPU, from []Source) {
	for i := range e.devices {
		entry := &e.devices[i]
		if !entry.host.Matches(string(host)) {
			continue
		}
		for _, written := range entry.index.Expand() {
			n, _ := strconv.Atoi(written) // which was checked
			index := snapshot.DeviceIndex(n)
			if !slices.ContainsFunc(list, func(other enforce.ExemptGPU) bool { return other.Index == index }) {
				list = append(list, enforce.ExemptGPU{Index: index, Entry: entry.written})
				from = append(from, entry.from)
			}
		}
	}
	return list, from
}

// Aliases map further names of users, in a directory or in /etc/passwd, to the one that rules use.
type Aliases map[snapshot.Username]snapshot.Username

// Name is the name that rules use for a user.
func (a Aliases) Name(user snapshot.Username) snapshot.Username {
	if name, other := a[user]; other {
		return name
	}
	return user
}

func (r *reader) readExempt(n *strictyaml.Node) {
	e := &r.file.exemptions
	e.users, e.uids, e.uuids = map[snapshot.Username]Source{}, map[snapshot.UID]Source{}, map[snapshot.GPUUUID]Source{}
	each := func(read func(*strictyaml.Node)) func(*strictyaml.Node) {
		return func(n *strictyaml.Node) { n.List(read) }
	}
	n.Map(strictyaml.Keys{
		"users": each(func(n *strictyaml.Node) {
			users, _ := r.readUserOrGroup(n)
			for _, user := range users {
				e.users[snapshot.Username(user)] = exemptAt(n)
			}
		}),
		"uids":         each(func(n *strictyaml.Node) { e.uids[snapshot.UID(n.Int(0, 1<<32-2))] = exemptAt(n) }),
		"processes":    each(r.exemptProcess),
		"containers":   each(e.readContainer),
		"environments": each(r.exemptEnvironment),
		"hosts": each(func(n *strictyaml.Node) {
			hosts := r.readHosts(n, n.Text())
			e.add(n, func(s enforce.Subject) string { return named(hosts.Matches(string(s.Host)), "host ", s.Host) })
		}),
		"devices": each(r.exemptDevice),
	})
}

func exemptAt(n *strictyaml.Node) Source { return Source{Place: n.Place(), By: "exempt"} }

func (e *exemptions) add(n *strictyaml.Node, names func(enforce.Subject) string) {
	e.entries, e.from = append(e.entries, names), append(e.from, exemptAt(n))
}

func named[T ~string](is bool, kind string, name T) string {
	if !is {
		return ""
	}
	return kind + string(name)
}

// The kernel keeps so much of a name: TASK_COMM_LEN less the NUL, see proc_pid_comm(5).
const commLength = 15

// exemptProcess reads a name, or a mapping that also names the owner. Users can give any name to their own processes.
func (r *reader) exemptProcess(n *strictyaml.Node) {
	var name string
	var user snapshot.Username
	if n.IsMap() {
		n.Map(r.owned(&name, &user))
		if name == "" {
			n.Failf("the name of the process is missing; add `name:`")
		}
	} else {
		name = n.Text()
	}
	match := glob(name)
	r.file.exemptions.add(n, func(s enforce.Subject) string {
		if s.Process == nil || user != "" && user != s.User {
			return ""
		}
		comm := s.Process.Name
		isCut := len(comm) == commLength && strings.HasPrefix(name, comm)
		return named(isCut || match.MatchString(comm), "process ", comm)
	})
}

func (r *reader) owned(name *string, user *snapshot.Username) strictyaml.Keys {
	return strictyaml.Keys{
		"name": func(n *strictyaml.Node) { *name = n.Text() },
		"user": func(n *strictyaml.Node) { *user = snapshot.Username(strings.Join(r.readUser(n), "")) },
	}
}

// exemptEnvironment reads an owner and a name. A name alone is refused: any user could give it to an environment. An ID
// on a host is ignored now: any user may ask for a free ID.
func (r *reader) exemptEnvironment(n *strictyaml.Node) {
	var name, host, eid string
	var user snapshot.Username
	keys := r.owned(&name, &user)
	keys["eid"] = func(n *strictyaml.Node) { eid = n.Scalar() }
	keys["host"] = func(n *strictyaml.Node) { host = n.Text() }
	n.Map(keys)
	switch {
	case name != "" && user != "" && eid == "" && host == "":
		match := glob(name)
		r.file.exemptions.add(n, func(s enforce.Subject) string {
			env := s.Environment
			is := env != nil && user == r.file.Accounts.Name(env.Username) && match.MatchString(env.Config.Name)
			if !is {
				return ""
			}
			return "environment " + string(env.EID)
		})
	case eid != "" && host != "" && name == "" && user == "":
		r.ignore(fmt.Sprintf("{host: %s, eid: %s}", host, eid),
			"write {user: bob, name: train}: any user may ask for an id that is free")(n)
	case n.IsMap():
		n.Failf("an environment is identified by {user: bob, name: train}; any user may choose a name")
	}
}

// readContainer reads a name, an image or a label. Only containers of root's runtime can be exempt: users of a rootless
// one choose these.
func (e *exemptions) readContainer(n *strictyaml.Node) {
	var name, image, label string
	n.Map(strictyaml.Keys{
		"name":  func(n *strictyaml.Node) { name = strings.TrimPrefix(n.Text(), "/") },
		"image": func(n *strictyaml.Node) { image = n.Text() },
		"label": func(n *strictyaml.Node) {
			if label = n.Text(); strings.Index(label, "=") < 1 {
				n.Failf("%q is not a label; write it as KEY=VALUE", label)
			}
		},
	})
	if n.IsMap() && name+image+label == "" {
		n.Failf("a container is identified by its name, image or label, as in {name: web, image: \"lab/*\", label: " +
			"team=vision}")
	}
	matchName, matchImage := glob(name), glob(image)
	key, value, _ := strings.Cut(label, "=")
	e.add(n, func(s enforce.Subject) string {
		if s.Process == nil || !s.Process.OfRootsRuntime() {
			return ""
		}
		c := s.Process.ContainerInfo
		is := name == "" || matchName.MatchString(c.Name)
		if c.Unknown { // its runtime did not describe it: what is unknown may be that of the entry
			is = is || c.Name == ""
		} else { // one that is known only by its cgroup (LXC, systemd-nspawn) has neither image nor label
			has, labelled := c.Labels[key]
			is = is && (image == "" || c.Image != "" && matchImage.MatchString(c.Image)) &&
				(label == "" || labelled && has == value || !labelled && c.LabelsCut)
		}
		if !is {
			return ""
		}
		return s.Process.ContainerName()
	})
}

// readUnprotected reads names of protected daemons. Other names would have no effect.
func (r *reader) readUnprotected(n *strictyaml.Node) {
	n.List(func(item *strictyaml.Node) {
		r.file.OfFleet.Unprotected = append(r.file.OfFleet.Unprotected, item.OneOf(safety.Protected()...))
	})
}

func (r *reader) exemptDevice(n *strictyaml.Node) {
	e, written := &r.file.exemptions, n.Text()
	if strings.HasPrefix(written, "GPU-") || strings.HasPrefix(written, "MIG-") {
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
	e.devices = append(e.devices, exemptIndices{written, r.readHosts(n, written[:colon]), index, exemptAt(n)})
}

func (r *reader) readHosts(n *strictyaml.Node, pattern string) text.HostPattern {
	r.refers(n, Reference{Kind: ToHost, Name: pattern})
	return readPattern(n, pattern)
}

// pattern is the text of n, or a part of it.
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
