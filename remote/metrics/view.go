package metrics

import (
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
)

// view is a host with what is counted there.
type view struct {
	Host
	hasGenv   bool
	eids      []snapshot.EnvID // of the processes; empty for one outside all environments
	attached  int              // devices with an attachment
	devicesOf map[snapshot.EnvID][]snapshot.DeviceIndex
	members   map[snapshot.EnvID]count
	userNames []snapshot.Username // in the order of their first environments
	byUser    map[snapshot.Username]*user
}

// count is a number of processes; unknown if there may be more.
type count struct {
	processes int
	unknown   bool
}

type user struct {
	count
	environments int
	devices      map[snapshot.DeviceIndex]bool
}

func newView(h *Host) *view {
	v := &view{
		Host: *h, hasGenv: h.Installed && h.Snapshot != nil, devicesOf: make(map[snapshot.EnvID][]snapshot.DeviceIndex),
		members: make(map[snapshot.EnvID]count), byUser: make(map[snapshot.Username]*user),
	}
	switch {
	case v.Snapshot == nil:
		v.Snapshot = &snapshot.Snapshot{}
	case !v.Installed:
		v.Snapshot = &snapshot.Snapshot{Devices: v.Snapshot.Devices}
	}
	v.countDevices()
	v.countProcesses()
	for i := range v.Snapshot.Environments {
		v.countUser(&v.Snapshot.Environments[i])
	}
	return v
}

func (v *view) countDevices() {
	for i := range v.Snapshot.Devices {
		d := &v.Snapshot.Devices[i]
		if len(d.Attachments) > 0 {
			v.attached++
		}
		for _, a := range d.Attachments {
			v.devicesOf[a.EID] = append(v.devicesOf[a.EID], d.Index)
		}
	}
}

// countProcesses counts the processes of each environment. A process in an unknown
// environment may be in each one that admits it.
func (v *view) countProcesses() {
	registered := make(map[snapshot.EnvID]*snapshot.Environment, len(v.Snapshot.Environments))
	for i := range v.Snapshot.Environments {
		registered[v.Snapshot.Environments[i].EID] = &v.Snapshot.Environments[i]
	}
	v.eids = make([]snapshot.EnvID, len(v.Snapshot.Processes))
	var unknown []*snapshot.Process
	for i := range v.Snapshot.Processes {
		p := &v.Snapshot.Processes[i]
		if p.EnvUnknown {
			unknown = append(unknown, p)
			continue
		}
		// What a process claims is the word of its user.
		if e := registered[p.EID]; e != nil && e.Admits(p.UID) {
			v.eids[i] = p.EID
			n := v.members[p.EID]
			n.processes++
			v.members[p.EID] = n
		}
	}
	uids, anyone := owners(unknown)
	for i := range v.Snapshot.Environments {
		e := &v.Snapshot.Environments[i]
		if n := v.members[e.EID]; anyone || uids[e.UID] {
			n.unknown = true
			v.members[e.EID] = n
		}
	}
}

// owners are the uids of processes. Those of root, and those whose uid is unknown, may be
// in anyone's environment.
func owners(processes []*snapshot.Process) (uids map[snapshot.UID]bool, anyone bool) {
	uids = make(map[snapshot.UID]bool)
	for _, p := range processes {
		if p.UID == nil || *p.UID == 0 {
			return nil, true
		}
		uids[*p.UID] = true
	}
	return uids, false
}

func (v *view) countUser(e *snapshot.Environment) {
	name := e.Username
	if name == "" { // the host has none
		name = snapshot.Username(fmt.Sprintf("uid %d", e.UID))
	}
	u := v.byUser[name]
	if u == nil {
		u = &user{devices: make(map[snapshot.DeviceIndex]bool)}
		v.byUser[name] = u
		v.userNames = append(v.userNames, name)
	}
	u.environments++
	u.processes += v.members[e.EID].processes
	u.unknown = u.unknown || v.members[e.EID].unknown
	for _, index := range v.devicesOf[e.EID] {
		u.devices[index] = true
	}
}
