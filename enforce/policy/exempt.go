package policy

import (
	"regexp"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Exemptions are what no rule applies to. Each method also returns the entry that
// it found.
type Exemptions struct {
	users map[snapshot.Username]Source
	uids  map[snapshot.UID]Source
	uuids map[snapshot.GPUUUID]Source

	processes, environments, hosts, devices []exemption

	containers []containerExemption
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
