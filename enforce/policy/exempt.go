package policy

import (
	"regexp"
	"slices"
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
