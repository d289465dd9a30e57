package notify

import (
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// Owners finds the users of the processes and environments of a cluster. The users
// of a host are collected once, when the first of them is looked up.
type Owners struct {
	hosts map[snapshot.Hostname]*snapshot.Host
	found map[snapshot.Hostname]*ownersOfHost
}

// ownersOfHost are the uids that the kernel reported for processes, and those of
// environments that the state files don't give to another user.
type ownersOfHost struct {
	processes map[snapshot.PID]snapshot.UID
	envs      map[snapshot.EnvID]snapshot.UID
	names     map[snapshot.UID]snapshot.Username
}

// NewOwners begins with a cluster, which must not change.
func NewOwners(cluster snapshot.Cluster) *Owners {
	o := &Owners{hosts: make(map[snapshot.Hostname]*snapshot.Host, len(cluster.Hosts)), found: make(map[snapshot.Hostname]*ownersOfHost)}
	for i := range cluster.Hosts {
		o.hosts[cluster.Hosts[i].Name] = &cluster.Hosts[i]
	}
	return o
}

func (o *Owners) ofProcess(ref enforce.ProcessRef) (addressee, bool) {
	uid, ok := o.on(ref.Host).processes[ref.PID]
	return addressee{ref.Host, uid}, ok
}

func (o *Owners) ofDevice(ref enforce.DeviceRef) (addressee, bool) {
	uid, ok := o.on(ref.Host).envs[ref.EID]
	return addressee{ref.Host, uid}, ok
}

func (o *Owners) on(host snapshot.Hostname) *ownersOfHost {
	found := o.found[host]
	if found != nil {
		return found
	}
	found = &ownersOfHost{
		processes: map[snapshot.PID]snapshot.UID{}, envs: map[snapshot.EnvID]snapshot.UID{}, names: map[snapshot.UID]snapshot.Username{},
	}
	o.found[host] = found
	h := o.hosts[host]
	if h == nil || h.Snapshot == nil {
		return found
	}
	for i := range h.Snapshot.Processes {
		if user, uid := h.Snapshot.Processes[i].Reported(); uid != nil {
			found.processes[h.Snapshot.Processes[i].PID] = *uid
			found.call(*uid, user)
		}
	}
	for i := range h.Snapshot.Environments {
		if e := &h.Snapshot.Environments[i]; !e.OwnerMismatch {
			found.envs[e.EID] = e.UID
			found.call(e.UID, e.Username)
		}
	}
	return found
}

// call keeps the first name of a uid: those that come with processes are of the host's
// own accounts.
func (o *ownersOfHost) call(uid snapshot.UID, name snapshot.Username) {
	if o.names[uid] == "" && name != "" {
		o.names[uid] = name
	}
}

// Name is what a host calls a user; empty if it doesn't say.
func (o *Owners) Name(host snapshot.Hostname, uid snapshot.UID) snapshot.Username {
	return o.on(host).names[uid]
}

// addressee is a user on a host.
type addressee struct {
	host snapshot.Hostname
	uid  snapshot.UID
}

// registered says whether a host has an environment with this id, of any user.
func (o *Owners) registered(host snapshot.Hostname, eid snapshot.EnvID) bool {
	h := o.hosts[host]
	return h != nil && h.Snapshot != nil && h.Snapshot.Environment(eid) != nil
}
