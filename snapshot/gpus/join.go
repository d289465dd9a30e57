package gpus

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Of lists the GPUs of a host by index. A process that uses several is on each of them.
func Of(s *snapshot.Snapshot) []GPU {
	j := newJoin(s)
	described := slices.ContainsFunc(s.Devices, func(d snapshot.Device) bool { return d.UUID != "" })
	for i := range s.Devices {
		j.describe(&j.list[i], &s.Devices[i])
	}
	used := make([]bool, len(j.list)) // by more than a desktop on its screen, and what is unproved
	for i := range s.Processes {
		p := &s.Processes[i]
		for _, usage := range p.Usage {
			if at, known := j.position[usage.Index]; known {
				process := j.process(p, usage)
				used[at] = used[at] || !p.NodeMissing && !s.OfDesktop(usage)
				process.Instances = j.list[at].own(p.Instances)
				j.list[at].Processes = append(j.list[at].Processes, process)
			}
		}
	}
	for i := range s.More {
		for _, index := range s.More[i].GPUs {
			if at, known := j.position[index]; known {
				used[at] = true
			}
		}
	}
	for i := range j.list {
		d := &s.Devices[i]
		lost := described && d.UUID == "" || d.ProcessesUnknown || d.Unidentified || d.Problem != "" ||
			!d.Unified && j.list[i].fails()
		if j.list[i].State = j.list[i].state(lost, used[i]); d.Failed {
			j.list[i].State = Failed
		}
	}
	slices.SortFunc(j.list, func(a, b GPU) int { return cmp.Compare(a.Index, b.Index) })
	return j.list
}

// join is a list in the making. What it consists of is allocated at once for all GPUs: there
// may be thousands of hosts to list.
type join struct {
	snapshot     *snapshot.Snapshot
	environments map[snapshot.EnvID]*snapshot.Environment
	position     map[snapshot.DeviceIndex]int // of each device
	list         []GPU
	attachments  []Attachment // room for all
	amounts      []int64      // room for those of all devices and uses
}

func newJoin(s *snapshot.Snapshot) *join {
	j := &join{
		snapshot: s, environments: snapshot.ByID(s.Environments),
		position: make(map[snapshot.DeviceIndex]int, len(s.Devices)), list: make([]GPU, len(s.Devices)),
	}
	attachments, used, uses := 0, make([]int, len(s.Devices)), 0
	for i := range s.Devices {
		j.position[s.Devices[i].Index] = i
		attachments += len(s.Devices[i].Attachments)
	}
	for i := range s.Processes {
		for _, usage := range s.Processes[i].Usage {
			if at, known := j.position[usage.Index]; known {
				used[at]++
				uses++
			}
		}
	}
	j.attachments = make([]Attachment, 0, attachments)
	j.amounts = make([]int64, 0, 2*len(s.Devices)+attachments+uses)
	processes := make([]Process, uses)
	for i, n := range used {
		j.list[i].Processes, processes = processes[:0:n], processes[n:]
	}
	return j
}

func (j *join) describe(g *GPU, d *snapshot.Device) {
	g.Index, g.UUID, g.Model, g.Driver = d.Index, d.UUID, d.Name, d.Driver
	g.Problem, g.MemoryUsed, g.MemoryTotal = Problem(d.Problem), j.bytesOf(d.UsedMemory), j.bytesOf(d.Capacity())
	g.Utilization, g.Temperature, g.Power = d.Utilization, d.Temperature, d.Power
	for _, instance := range d.Instances {
		g.Instances = append(g.Instances, Instance{instance.UUID, instance.Profile, j.bytesOf(instance.Total)})
	}
	begin := len(j.attachments)
	for _, a := range d.Attachments {
		j.attachments = append(j.attachments, j.attachment(a))
	}
	if g.Attached = slices.Clip(j.attachments[begin:]); d.Unidentified && len(d.Attachments) == 0 {
		g.Attached = nil
	}
}

// own are those of a list of MIG instances that the GPU has.
func (g *GPU) own(list []snapshot.GPUUUID) (own []snapshot.GPUUUID) {
	for _, instance := range g.Instances {
		if slices.Contains(list, instance.UUID) {
			own = append(own, instance.UUID)
		}
	}
	return own
}

// attachment describes an attachment. One of an environment that isn't registered any more
// has no user.
func (j *join) attachment(a snapshot.Attachment) Attachment {
	described := Attachment{
		EID: a.EID, Memory: j.bytesOf(a.GPUMemory), Instances: a.Instances, Since: j.snapshot.When(a.Since, a.Time),
	}
	if e := j.environments[a.EID]; e != nil {
		described.Name, described.User = e.Config.Name, UserName(e.Username, &e.UID)
	}
	return described
}

func (j *join) process(p *snapshot.Process, usage snapshot.DeviceUsage) Process {
	described := Process{
		PID: p.PID, Start: p.Start, User: UserName(p.Account(j.environments[p.EID])), EID: p.EID, Command: p.CommandOrName(),
		PrivateCommand: p.PrivateCommand,
		Memory:         j.bytesOf(usage.Memory), Container: p.Container, Unproved: p.NodeMissing,
	}
	if usage.Type != snapshot.TypePending {
		described.Type = usage.Type
	}
	if c := p.ContainerInfo; c != nil {
		described.ContainerName, described.Image, described.StartedBy = c.Name, c.Image, UserName(c.User, c.UID)
	}
	return described
}

// bytesOf is an amount in bytes; nil if it is unknown.
func (j *join) bytesOf(m snapshot.Memory) *int64 {
	if !m.Known() {
		return nil
	}
	j.amounts = append(j.amounts, m.Bytes())
	return &j.amounts[len(j.amounts)-1]
}

// fails says whether the driver knows the GPU and can't measure anything of it.
func (g *GPU) fails() bool {
	return g.UUID != "" && g.MemoryUsed == nil && g.Utilization == nil && g.Temperature == nil && g.Power == nil
}

// InUse are the states of the GPUs of a list that aren't known to be unused. Which are attached the
// state files know better.
func InUse(list []GPU) map[snapshot.DeviceIndex]State {
	states := make(map[snapshot.DeviceIndex]State)
	for i := range list {
		g := &list[i]
		switch {
		case g.State == Failed, g.State == Unknown:
			states[g.Index] = g.State
		case g.Problem != "":
			states[g.Index] = Unknown
		case len(g.Processes) > 0:
			states[g.Index] = g.State
		}
	}
	return states
}

// Unexplained is how much memory is in use that belongs to no visible process; 0 for as little as
// a driver itself uses.
func (g *GPU) Unexplained() int64 {
	if len(g.Processes) > 0 || g.MemoryUsed == nil || *g.MemoryUsed < hiddenBytes {
		return 0
	}
	return *g.MemoryUsed
}

// state says what a GPU that works is used for. lost says that the driver reports other devices
// of the host and not this one, or not all of this one.
func (g *GPU) state(lost, used bool) State {
	switch {
	case used && g.Utilization != nil && *g.Utilization == 0:
		return Idle
	case used:
		return Busy
	case lost, g.Unexplained() > 0:
		return Unknown
	case len(g.Attached) > 0:
		return Attached
	}
	return Free
}
