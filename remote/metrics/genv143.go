package metrics

import (
	"cmp"
	"strconv"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// Host is a host that answered.
type Host struct {
	Name      snapshot.Hostname // empty on the host itself
	Installed bool              // genv is installed there
	// Snapshot is nil if nothing else is known about the host. Without genv, only its devices are shown.
	Snapshot *snapshot.Snapshot
}

// Genv143 has the metrics of hosts under the names of genv 1.4.3. Those of a host with a
// name have the label hostname; either all hosts have one, or there is only one host.
func Genv143(hosts []Host) []byte {
	views := make([]*view, len(hosts))
	for i := range hosts {
		views[i] = newView(&hosts[i])
	}
	var w Writer
	for _, f := range families {
		labels := f.labels
		if len(hosts) > 0 && hosts[0].Name != "" {
			labels = append([]string{"hostname"}, labels...)
		}
		w.Gauge("genv_"+f.name, f.help, labels...)
		for _, v := range views {
			f.samples(v, func(value float64, labels ...string) {
				if v.Name != "" {
					labels = append([]string{string(v.Name)}, labels...)
				}
				w.Sample(value, labels...)
			})
		}
	}
	return w.Text()
}

// add writes a sample with the values of the family's labels.
type add func(value float64, labels ...string)

var byIndex, byEID, byUser = []string{"index"}, []string{"eid"}, []string{"username"}

// families are the names of genv 1.4.3, without the genv_ with which all begin, and
// process_container_info. They are gauges, also those that end in _total.
var families = []struct {
	name, help string
	labels     []string
	samples    func(*view, add)
}{
	{
		"is_installed", "Whether genv is installed on the host (1) or not (0).", nil,
		func(v *view, add add) { add(number(v.Installed)) },
	},

	{
		"device_utilization", "Utilization of a device in per cent, over the driver's last sample.", byIndex,
		ofDevices(func(d *snapshot.Device) (float64, bool) { return measured(d.Utilization) }),
	},
	{
		"device_temperature", "Temperature of a device in degrees Celsius.", byIndex,
		ofDevices(func(d *snapshot.Device) (float64, bool) { return measured(d.Temperature) }),
	},
	{
		"device_memory_used_bytes", "Memory of a device that is in use.", byIndex,
		ofDevices(func(d *snapshot.Device) (float64, bool) { return bytesOf(d.UsedMemory) }),
	},
	{
		"device_memory_total_bytes", "Memory of a device.", byIndex,
		ofDevices(func(d *snapshot.Device) (float64, bool) { return bytesOf(d.Capacity()) }),
	},

	{
		"environments_total", "Active environments.", nil,
		ofHost(func(v *view) int { return len(v.Snapshot.Environments) }),
	},
	{
		"processes_total", "Processes that use a device.", nil,
		ofHost(func(v *view) int { return len(v.Snapshot.Processes) }),
	},
	{
		"attached_devices_total", "Devices that at least one environment is attached to.", nil,
		ofHost(func(v *view) int { return v.attached }),
	},
	{"users_total", "Users with an active environment.", nil, ofHost(func(v *view) int { return len(v.userNames) })},

	{
		"environment_processes_total", "Processes of an environment that use a device.", byEID,
		(*view).environmentProcesses,
	},
	{
		"environment_attached_devices_total", "Devices that an environment is attached to.", byEID,
		(*view).environmentDevices,
	},

	{
		"process_devices_total", "Devices that a process uses; eid is empty for a process outside all environments.",
		[]string{"pid", "eid"},
		(*view).processDevices,
	},
	{
		"process_used_gpu_memory_bytes", "Memory of a device that a process uses.",
		[]string{"pid", "eid", "device"},
		(*view).processMemory,
	},
	{"process_container_info", "1 for each process in a container, with the container's name or id; started_by is " +
		"empty if it isn't proved.", []string{"pid", "container", "image", "started_by"}, (*view).processContainers},

	{
		"user_environments_total", "Active environments of a user.", byUser,
		ofUsers(func(u *user) (int, bool) { return u.environments, true }),
	},
	{
		"user_processes_total", "Processes in a user's environments that use a device.", byUser,
		ofUsers(func(u *user) (int, bool) { return u.processes, !u.unknown }),
	},
	{
		"user_attached_devices_total", "Devices that a user's environments are attached to.", byUser,
		ofUsers(func(u *user) (int, bool) { return len(u.devices), true }),
	},
}

// ofDevices are samples of each device for which the value is known.
func ofDevices(value func(*snapshot.Device) (float64, bool)) func(*view, add) {
	return func(v *view, add add) {
		for i := range v.Snapshot.Devices {
			d := &v.Snapshot.Devices[i]
			if value, known := value(d); known {
				add(value, d.Index.String())
			}
		}
	}
}

func measured(value *int) (float64, bool) {
	if value == nil {
		return 0, false
	}
	return float64(*value), true
}

func bytesOf(m snapshot.Memory) (float64, bool) { return float64(m.Bytes()), m.Known() }

// ofHost is a sample of a host that has genv.
func ofHost(value func(*view) int) func(*view, add) {
	return func(v *view, add add) {
		if v.hasGenv {
			add(float64(value(v)))
		}
	}
}

// ofUsers are samples of each user for whom the value is known.
func ofUsers(value func(*user) (int, bool)) func(*view, add) {
	return func(v *view, add add) {
		for _, name := range v.userNames {
			if value, known := value(v.byUser[name]); known {
				add(float64(value), string(name))
			}
		}
	}
}

func (v *view) environmentProcesses(add add) {
	for _, e := range v.Snapshot.Environments {
		if n := v.members[e.EID]; !n.unknown {
			add(float64(n.processes), string(e.EID))
		}
	}
}

func (v *view) environmentDevices(add add) {
	for _, e := range v.Snapshot.Environments {
		add(float64(len(v.devicesOf[e.EID])), string(e.EID))
	}
}

func (v *view) processDevices(add add) {
	for i, p := range v.shownProcesses() {
		if !p.EnvUnknown {
			add(float64(len(p.Usage)), pid(&p), string(v.eids[i]))
		}
	}
}

func (v *view) processMemory(add add) {
	for i, p := range v.shownProcesses() {
		if p.EnvUnknown {
			continue
		}
		for _, u := range p.Usage {
			if value, known := bytesOf(u.Memory); known {
				add(value, pid(&p), string(v.eids[i]), u.Index.String())
			}
		}
	}
}

func (v *view) processContainers(add add) {
	for _, p := range v.shownProcesses() {
		if p.Container == "" {
			continue
		}
		name, image, user := snapshot.ShortID(p.Container), "", snapshot.Username("")
		if c := p.ContainerInfo; c != nil {
			name, image, user = cmp.Or(c.Name, name), c.Image, gpus.UserName(c.User, c.UID)
		}
		add(1, pid(&p), cut(name), cut(image), cut(string(user)))
	}
}

func pid(p *snapshot.Process) string { return strconv.Itoa(int(p.PID)) }

func (v *view) shownProcesses() []snapshot.Process {
	if !v.hasGenv {
		return nil
	}
	return v.Snapshot.Processes
}
