package gpus

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Of lists the GPUs of a host by index. A process that uses several is on each of them.
func Of(s *snapshot.Snapshot) []GPU {
	environments := make(map[snapshot.EnvID]*snapshot.Environment, len(s.Environments))
	for i := range s.Environments {
		environments[s.Environments[i].EID] = &s.Environments[i]
	}
	described := slices.ContainsFunc(s.Devices, func(d snapshot.Device) bool { return d.UUID != "" })
	list := make([]GPU, len(s.Devices))
	position := make(map[snapshot.DeviceIndex]int, len(s.Devices))
	used := processesByDevice(s)
	for i := range s.Devices {
		d := &s.Devices[i]
		list[i] = describe(d, used[d.Index])
		for _, a := range d.Attachments {
			list[i].Attached = append(list[i].Attached, attachment(s, a, environments[a.EID]))
		}
		position[d.Index] = i
	}
	for i := range s.Processes {
		p := &s.Processes[i]
		for _, usage := range p.Usage {
			if at, known := position[usage.Index]; known {
				list[at].Processes = append(list[at].Processes, process(p, usage, environments[p.EID]))
			}
		}
	}
	for i := range list {
		lost := described && list[i].UUID == ""
		list[i].State = list[i].state(lost || list[i].fails())
	}
	slices.SortFunc(list, func(a, b GPU) int { return cmp.Compare(a.Index, b.Index) })
	return list
}

// processesByDevice counts processes: there may be thousands of hosts to list.
func processesByDevice(s *snapshot.Snapshot) map[snapshot.DeviceIndex]int {
	used := make(map[snapshot.DeviceIndex]int, len(s.Devices))
	for i := range s.Processes {
		for _, usage := range s.Processes[i].Usage {
			used[usage.Index]++
		}
	}
	return used
}

// describe describes a device that so many processes use.
func describe(d *snapshot.Device, processes int) GPU {
	return GPU{
		Index: d.Index, UUID: d.UUID, Model: d.Name, MemoryUsed: bytesOf(d.UsedMemory), MemoryTotal: bytesOf(d.TotalMemory),
		Utilization: d.Utilization, Temperature: d.Temperature, Power: d.Power,
		Attached: make([]Attachment, 0, len(d.Attachments)), Processes: make([]Process, 0, processes),
	}
}

// attachment describes an attachment. One of an environment that isn't registered any more
// has no user.
func attachment(s *snapshot.Snapshot, a snapshot.Attachment, e *snapshot.Environment) Attachment {
	described := Attachment{EID: a.EID, Memory: bytesOf(a.GPUMemory)}
	if !a.Time.IsZero() {
		described.Since = a.Time.In(s.Location())
	}
	if e != nil {
		described.Name, described.User = e.Config.Name, UserName(e.Username, &e.UID)
	}
	return described
}

// process describes a process in an environment; nil for none.
func process(p *snapshot.Process, usage snapshot.DeviceUsage, e *snapshot.Environment) Process {
	return Process{
		PID: p.PID, Start: p.Start, User: Owner(p, e), EID: p.EID, Command: p.CommandOrName(),
		Memory: bytesOf(usage.Memory), Container: p.Container,
	}
}

// fails says whether the driver knows the GPU and can't measure anything of it.
func (g *GPU) fails() bool {
	return g.UUID != "" && g.MemoryUsed == nil && g.Utilization == nil && g.Temperature == nil && g.Power == nil
}

// state says what the GPU is used for. lost says that the driver reports other devices of
// the host and not this one, or that this one fails.
func (g *GPU) state(lost bool) State {
	switch {
	case len(g.Processes) > 0 && g.Utilization != nil && *g.Utilization == 0:
		return Idle
	case len(g.Processes) > 0:
		return Busy
	case lost, g.MemoryUsed != nil && *g.MemoryUsed >= hiddenBytes:
		return Unknown
	case len(g.Attached) > 0:
		return Attached
	}
	return Free
}

// bytesOf is an amount in bytes; nil if it is unknown.
func bytesOf(m snapshot.Memory) *int64 {
	if !m.Known() {
		return nil
	}
	bytes := m.Bytes()
	return &bytes
}
