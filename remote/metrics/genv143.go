package metrics

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"

	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// Scraped is a host that answered.
type Scraped struct {
	Name      snapshot.Hostname // empty on the host itself
	Installed bool              // genv is installed there
	// Snapshot is nil if unknown. Without genv, only its devices are shown.
	Snapshot *snapshot.Snapshot
}

// families143 have genv 1.4.3's names without genv_; process_container_info is new. All are gauges, even …_total.
var families143 = []family{
	{"is_installed", "", "Whether genv is installed on the host (1) or not (0)."},
	{"device_utilization", "index", "Utilization of a device in per cent, over the driver's last sample."},
	{"device_temperature", "index", "Temperature of a device in degrees Celsius."},
	{"device_memory_used_bytes", "index", "Memory of a device that is in use."},
	{"device_memory_total_bytes", "index", "Memory of a device."},
	{"environments_total", "", "Active environments."},
	{"processes_total", "", "Processes that use a device."},
	{"attached_devices_total", "", "Devices that at least one environment is attached to."},
	{"users_total", "", "Users with an active environment."},
	{"environment_processes_total", "eid", "Processes of an environment that use a device."},
	{"environment_attached_devices_total", "eid", "Devices that an environment is attached to."},
	{"process_devices_total", "pid eid", "Devices that a process uses; eid is empty for a process outside all " +
		"environments."},
	{"process_used_gpu_memory_bytes", "pid eid device", "Memory of a device that a process uses."},
	{"process_container_info", "pid container image started_by", "1 for each process in a container, with the " +
		"container's name or id; started_by is empty if it isn't proved."},
	{"user_environments_total", "username", "Active environments of a user."},
	{"user_processes_total", "username", "Processes in a user's environments that use a device."},
	{"user_attached_devices_total", "username", "Devices that a user's environments are attached to."},
}

// Genv143 has hosts' metrics under genv 1.4.3's names, with hostname if hosts have names.
func Genv143(hosts []Scraped) []byte {
	common := ""
	if len(hosts) > 0 && hosts[0].Name != "" {
		common = "hostname "
	}
	g := begin(families143, "genv_", common)
	for i := range hosts {
		if name := string(hosts[i].Name); name != "" {
			g.host = []string{name}
		}
		hosts[i].write(g)
	}
	return g.text()
}

func (h *Scraped) write(g *gauges) {
	g.add("is_installed", number(h.Installed))
	if h.Snapshot == nil {
		return
	}
	for i := range h.Snapshot.Devices {
		d := &h.Snapshot.Devices[i]
		addKnown(g, "device_utilization", d.Utilization, d.Index.String())
		addKnown(g, "device_temperature", d.Temperature, d.Index.String())
		addMemory(g, "device_memory_used_bytes", d.UsedMemory, d.Index.String())
		addMemory(g, "device_memory_total_bytes", d.Capacity(), d.Index.String())
	}
	if h.Installed {
		writeEnvironments(g, h.Snapshot)
		writeProcesses(g, h.Snapshot)
	}
}

func addKnown[N int | int64](g *gauges, family string, value *N, labels ...string) {
	if value != nil {
		g.add(family, float64(*value), labels...)
	}
}

func addMemory(g *gauges, family string, m snapshot.Memory, labels ...string) {
	if m.Known() {
		g.add(family, float64(m.Bytes()), labels...)
	}
}

type tally struct {
	environments, processes int
	unknown                 bool // there may be more processes
	devices                 map[snapshot.DeviceIndex]bool
}

func writeEnvironments(g *gauges, s *snapshot.Snapshot) {
	g.add("environments_total", float64(len(s.Environments)))
	environments := make(map[snapshot.EnvID]*tally, len(s.Environments))
	for i := range s.Environments {
		environments[s.Environments[i].EID] = &tally{devices: make(map[snapshot.DeviceIndex]bool)}
	}
	attached := 0
	for i := range s.Devices {
		d := &s.Devices[i]
		attached += min(len(d.Attachments), 1)
		for _, a := range d.Attachments {
			if environments[a.EID] != nil {
				environments[a.EID].devices[d.Index] = true
			}
		}
	}
	g.add("attached_devices_total", float64(attached))
	countProcesses(environments, s)
	users, names := make(map[string]*tally), []string{} // by first environment
	for i := range s.Environments {
		e := &s.Environments[i]
		has, name := environments[e.EID], cmp.Or(string(e.Username), fmt.Sprintf("uid %d", e.UID))
		if !has.unknown {
			g.add("environment_processes_total", float64(has.processes), string(e.EID))
		}
		g.add("environment_attached_devices_total", float64(len(has.devices)), string(e.EID))
		u := users[name]
		if u == nil {
			u = &tally{devices: make(map[snapshot.DeviceIndex]bool)}
			users[name], names = u, append(names, name)
		}
		u.environments, u.processes, u.unknown = u.environments+1, u.processes+has.processes, u.unknown || has.unknown
		maps.Copy(u.devices, has.devices)
	}
	g.add("users_total", float64(len(names)))
	for _, name := range names {
		u := users[name]
		g.add("user_environments_total", float64(u.environments), name)
		if !u.unknown {
			g.add("user_processes_total", float64(u.processes), name)
		}
		g.add("user_attached_devices_total", float64(len(u.devices)), name)
	}
}

// countProcesses counts by environment. A process in an unknown one may be in any of its user's; one of root or an
// unknown user in any.
func countProcesses(environments map[snapshot.EnvID]*tally, s *snapshot.Snapshot) {
	registered, uids, anyone := snapshot.ByID(s.Environments), make(map[snapshot.UID]bool), false
	for i := range s.Processes {
		switch p := &s.Processes[i]; {
		case p.EnvUnknown && (p.UID == nil || *p.UID == 0):
			anyone = true
		case p.EnvUnknown:
			uids[*p.UID] = true
		case snapshot.EnvironmentOf(p, registered) != nil:
			environments[p.EID].processes++
		}
	}
	for i := range s.Environments {
		e := &s.Environments[i]
		environments[e.EID].unknown = anyone || uids[e.UID]
	}
}

func writeProcesses(g *gauges, s *snapshot.Snapshot) {
	g.add("processes_total", float64(len(s.Processes)))
	registered := snapshot.ByID(s.Environments)
	for i := range s.Processes {
		p := &s.Processes[i]
		pid, eid := strconv.Itoa(int(p.PID)), ""
		if snapshot.EnvironmentOf(p, registered) != nil {
			eid = string(p.EID)
		}
		if !p.EnvUnknown {
			g.add("process_devices_total", float64(len(p.Usage)), pid, eid)
			for _, u := range p.Usage {
				addMemory(g, "process_used_gpu_memory_bytes", u.Memory, pid, eid, u.Index.String())
			}
		}
		if p.Container == "" {
			continue
		}
		name, image, user := snapshot.ShortID(p.Container), "", snapshot.Username("")
		if c := p.ContainerInfo; c != nil {
			name, image, user = cmp.Or(c.Name, name), c.Image, gpus.UserName(c.User, c.UID)
		}
		g.add("process_container_info", 1, pid, usage.Cut(name), usage.Cut(image), usage.Cut(string(user)))
	}
}

// Missing says which of a host's series are left out, and why.
func (h *Scraped) Missing() string {
	if h.Snapshot == nil || !h.Installed {
		return ""
	}
	for i := range h.Snapshot.Processes {
		if h.Snapshot.Processes[i].EnvUnknown {
			return "processes whose environment is unknown: their series are left out, and the numbers of processes " +
				"of the environments and users that they may belong to. Only root can read which environments other " +
				"users' processes are in"
		}
	}
	return ""
}
