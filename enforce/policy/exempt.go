package policy

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hostpattern"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// Exemptions are what no rule touches. Each question is answered with the place
// of the entry that says yes.
type Exemptions struct {
	users        map[snapshot.Username]Source
	uids         map[snapshot.UID]Source
	processes    []named
	environments []named
	books        []placed[snapshot.EnvID]
	hosts        []placed[struct{}]
	devices      []placed[hostpattern.Pattern] // of indices
	uuids        map[snapshot.GPUUUID]Source
}

// named is a name with * in it, of a certain user's or of anybody's.
type named struct {
	name  string
	match *regexp.Regexp
	user  snapshot.Username // "" for anybody
	from  Source
}

// placed is something on the hosts of a pattern.
type placed[T any] struct {
	host hostpattern.Pattern
	what T
	from Source
}

// User says whether a user is exempt.
func (e *Exemptions) User(user snapshot.Username) (Source, bool) {
	from, ok := e.users[user]
	return from, ok
}

// anyUser says whether any user is exempt by name, and where the first of them is.
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
	for _, h := range e.hosts {
		if h.host.Matches(string(host)) {
			return h.from, true
		}
	}
	return Source{}, false
}

// commLength is how much of a process's name the kernel keeps: TASK_COMM_LEN
// less the NUL, see proc_pid_comm(5).
const commLength = 15

// Process says whether a process of this name is exempt; user is its owner, ""
// if that is not known. Anybody can rename a process of their own.
func (e *Exemptions) Process(name string, user snapshot.Username) (Source, bool) {
	for _, p := range e.processes {
		cut := len(name) == commLength && strings.HasPrefix(p.name, name)
		if (cut || p.match.MatchString(name)) && (p.user == "" || p.user == user) {
			return p.from, true
		}
	}
	return Source{}, false
}

// Environment says whether an environment is exempt, by its id on its host or
// by its owner and name.
func (e *Exemptions) Environment(host snapshot.Hostname, eid snapshot.EnvID, user snapshot.Username, name string) (Source, bool) {
	for _, b := range e.books {
		if b.what == eid && b.host.Matches(string(host)) {
			return b.from, true
		}
	}
	for _, n := range e.environments {
		if n.user == user && n.match.MatchString(name) {
			return n.from, true
		}
	}
	return Source{}, false
}

// Device says whether a device is exempt; uuid is "" if it is not known.
func (e *Exemptions) Device(host snapshot.Hostname, index snapshot.DeviceIndex, uuid snapshot.GPUUUID) (Source, bool) {
	if from, ok := e.uuids[uuid]; ok {
		return from, true
	}
	for _, d := range e.devices {
		if d.what.Matches(index.String()) && d.host.Matches(string(host)) {
			return d.from, true
		}
	}
	return Source{}, false
}

func (r *reader) readExempt(n *strictyaml.Node) {
	e := &r.file.Exemptions
	e.users, e.uids, e.uuids = map[snapshot.Username]Source{}, map[snapshot.UID]Source{}, map[snapshot.GPUUUID]Source{}
	n.Map(strictyaml.Keys{
		"users":        func(n *strictyaml.Node) { r.exemptUsers(n) },
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
		if group, ok := strings.CutPrefix(item.Text(), "@"); ok {
			users, err := r.group(group)
			if err != nil {
				item.Failf("@%s: %v", group, err)
			}
			for _, user := range users {
				r.file.Exemptions.users[snapshot.Username(user)] = exemptAt(item)
			}
		} else if user, ok := readUser(item); ok {
			r.file.Exemptions.users[snapshot.Username(user)] = exemptAt(item)
		}
	})
}

func (e *Exemptions) readUID(n *strictyaml.Node) {
	e.uids[snapshot.UID(n.Int(0, 1<<32-2))] = exemptAt(n)
}

// readProcess reads a name, or a mapping that also says whose it has to be.
func (e *Exemptions) readProcess(n *strictyaml.Node) {
	p := named{from: exemptAt(n)}
	if n.IsMap() {
		n.Map(strictyaml.Keys{
			"name": func(n *strictyaml.Node) { p.name = n.Text() },
			"user": func(n *strictyaml.Node) { user, _ := readUser(n); p.user = snapshot.Username(user) },
		})
		if p.name == "" {
			n.Failf("the process has no name; add `name:`")
		}
	} else {
		p.name = n.Text()
	}
	p.match = glob(p.name)
	e.processes = append(e.processes, p)
}

// readEnvironment reads whose and which, or an id on a host. A name alone will
// not do: anybody may give it to an environment and would be exempt.
func (e *Exemptions) readEnvironment(n *strictyaml.Node) {
	env := named{from: exemptAt(n)}
	book := placed[snapshot.EnvID]{from: exemptAt(n)}
	n.Map(strictyaml.Keys{
		"name": func(n *strictyaml.Node) { env.name = n.Text() },
		"user": func(n *strictyaml.Node) { user, _ := readUser(n); env.user = snapshot.Username(user) },
		"eid":  func(n *strictyaml.Node) { book.what = snapshot.EnvID(n.Scalar()) },
		"host": func(n *strictyaml.Node) { book.host = readPattern(n, n.Text()) },
	})
	byName, byID := env.name != "" && env.user != "", book.what != "" && book.host.Count() > 0
	switch {
	case byName && book.what == "" && book.host.Count() == 0:
		env.match = glob(env.name)
		e.environments = append(e.environments, env)
	case byID && env.name == "" && env.user == "":
		e.books = append(e.books, book)
	case n.IsMap():
		n.Failf("an environment is named by {user: bob, name: train}, or by {host: gpu-01, eid: 4711}; anybody may take a name")
	}
}

func (e *Exemptions) readHost(n *strictyaml.Node) {
	e.hosts = append(e.hosts, placed[struct{}]{host: readPattern(n, n.Text()), from: exemptAt(n)})
}

// readUnprotected reads names of daemons that are protected otherwise. No name
// of another will do: nothing else is protected, so it would be a misspelling.
func (r *reader) readUnprotected(n *strictyaml.Node) {
	n.List(func(item *strictyaml.Node) {
		r.file.Unprotected = append(r.file.Unprotected, item.OneOf(enforce.Protected()...))
	})
}

// readDevice reads host:index, both with ranges, or the UUID of a device.
func (e *Exemptions) readDevice(n *strictyaml.Node) {
	text := n.Text()
	if strings.HasPrefix(text, "GPU-") || strings.HasPrefix(text, "MIG-") {
		e.uuids[snapshot.GPUUUID(text)] = exemptAt(n)
		return
	}
	colon := strings.LastIndexByte(text, ':')
	if colon < 0 {
		if text != "" {
			n.Failf("%q is no device; write it as gpu-01:0, gpu-[01-04]:[0-3], or by its UUID, GPU-…", text)
		}
		return
	}
	index := readPattern(n, text[colon+1:])
	for _, i := range index.Expand() {
		if _, err := strconv.ParseUint(i, 10, 16); err != nil {
			n.Failf("%q is no index of a device; write a number, as in gpu-01:0", i)
			return
		}
	}
	e.devices = append(e.devices, placed[hostpattern.Pattern]{host: readPattern(n, text[:colon]), what: index, from: exemptAt(n)})
}

// readPattern parses a part of a text; one that is empty was complained about.
func readPattern(n *strictyaml.Node, text string) hostpattern.Pattern {
	if text == "" && n.IsText() {
		n.Failf("there is something missing; write it as gpu-01, or gpu-01:0 for a device")
	}
	if text == "" {
		return hostpattern.Pattern{}
	}
	p, err := hostpattern.Parse(text)
	if err != nil {
		n.Failf("%v", err)
	}
	return p
}

// glob matches whole names in which * stands for any text.
func glob(name string) *regexp.Regexp {
	return regexp.MustCompile(`(?s)^` + strings.ReplaceAll(regexp.QuoteMeta(name), `\*`, `.*`) + `$`)
}
