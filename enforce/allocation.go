package enforce

import (
	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// allocations are what users with caps have, with what stands for it here.
type allocations struct {
	*holdings.Shard
	j         *judgement
	hosts     []*hostView         // of Shard.Hosts
	processes []*snapshot.Process // of Shard.Processes
	byUser    map[snapshot.Username]*allocation
	inOrder   []*allocation

	here *hostView                 // the host that is being counted,
	host int                       // its index,
	from int                       // and where its processes begin
	many map[*snapshot.Process]int // and the indices of its processes

	unsettled []unsettled // of that host
	room      int         // for processes

	dealt map[int]bool // the processes that a finding named already

	// Most lists have one item: these are where they begin, many at once.
	devices  contents.Slab[holdings.Device]
	losses   contents.Firsts[holdings.Loss]
	attached contents.Firsts[holdings.Attached]
	uses     contents.Firsts[holdings.Use]
	indices  contents.Firsts[int]
}

// unsettled is a device of which not all is counted yet, with the memory that it has.
type unsettled struct {
	*holdings.Device
	total snapshot.Memory
}

// allocation is what one user has on all hosts together. A device counts once for
// a user, however many of the user's environments are attached to it.
type allocation struct {
	holdings.User
	settings *Settings // nil for a user without caps, for whom nothing is counted

	last    *hostView                                              // the host that was counted last,
	devices contents.Index[snapshot.DeviceIndex, *holdings.Device] // and the user's devices there
}

// allocations lists the users who have caps with what they have. An environment whose user has
// no name counts for no user; the processes in it count for their own users. What the rules
// before the caps take from users anyway is marked.
func (j *judgement) allocations() *allocations {
	parts := make([]*allocations, partsOf(len(j.hosts)))
	inParts(len(j.hosts), func(i, from, to int) {
		part := *j
		part.hosts, part.notes = j.hosts[from:to], nil
		room := part.countProcesses()
		if i == 0 {
			room = j.countProcesses() // the others join it
		}
		parts[i] = part.allocationsOfPart(room)
	})
	all := parts[0]
	for i, part := range parts {
		j.notes = append(j.notes, part.j.notes...)
		if i > 0 {
			all.join(part)
		}
	}
	all.j, all.Missing = j, len(j.missing)
	for rank, u := range all.inOrder {
		u.Rank, u.Due = rank, j.dueCaps(u)
		all.Users = append(all.Users, u.User)
	}
	return all
}

// allocationsOfPart is for some of the hosts, with room for so many processes once there is one.
func (j *judgement) allocationsOfPart(room int) *allocations {
	all := &allocations{Shard: &holdings.Shard{}, j: j, byUser: make(map[snapshot.Username]*allocation), dealt: make(map[int]bool), room: room}
	for _, h := range j.hosts {
		all.here = nil
		for _, env := range h.inOrder {
			if env.env.Username == "" {
				j.note(h, "environment %s has no user name, so no cap counts it", text.Shown(string(env.env.EID)))
				continue
			}
			if env.user = all.of(env.env.Username); env.user.settings != nil {
				all.add(env.user, h, env)
			}
		}
		all.addUses(h)
	}
	all.settle()
	return all
}

// of finds a user, and asks the policy about one who is new.
func (all *allocations) of(user snapshot.Username) *allocation {
	found := all.byUser[user]
	if found == nil {
		found = &allocation{User: holdings.User{Name: user}}
		found.settings = capSettings(all.j.policy, user, all.j.now)
		all.byUser[user] = found
	}
	return found
}

// addUses counts, for each user, the devices that the user's processes use, if
// these are in a registered environment or claim to be. Otherwise a user could
// evade the caps by registering environments under another user's name. Processes
// whose environment is unknown count too, and never end for it.
func (all *allocations) addUses(h *hostView) {
	for i := range h.snapshot.Processes {
		p, env := &h.snapshot.Processes[i], h.in[i]
		if h.exempt[p.PID] {
			continue
		}
		user := h.userOf(p)
		if env != nil && env.user != nil {
			if env.user.Name == user {
				all.addUsesOf(env.user, h, env, p)
				continue
			}
			all.addForeign(h, env, p)
		}
		if user != "" && (env != nil || h.claimed(p) != nil || p.EnvUnknown) {
			all.addUsesOf(all.of(user), h, env, p)
		}
	}
}

func (all *allocations) addUsesOf(u *allocation, h *hostView, in *envView, p *snapshot.Process) {
	if u.settings == nil {
		return
	}
	for _, use := range p.Usage {
		if device := h.devices.Get(use.Index); device != nil {
			all.addUse(u, h, device, in, p)
		}
	}
}

// addForeign counts a process of another user or of root for the user of the environment that it
// is in, on the devices to which that environment is attached.
func (all *allocations) addForeign(h *hostView, env *envView, p *snapshot.Process) {
	if env.user.settings == nil {
		return
	}
	for _, a := range env.Attachments {
		if d := env.user.devices.Get(a.Device.Index); d != nil && p.Uses(d.Index) != nil {
			all.addProcess(env.user, h, d, env, p)
		}
	}
}

// begin starts to count what the user has on a host. All of one host is counted
// before the next one begins.
func (all *allocations) begin(u *allocation, h *hostView) {
	if all.here != h {
		all.settle()
		all.here, all.host = h, len(all.Hosts)
		all.Hosts = append(all.Hosts, holdings.Host{Name: h.name, Order: h.order})
		all.hosts = append(all.hosts, h)
		all.from, all.many = len(all.processes), nil
	}
	if u.last == h {
		return
	}
	if u.last == nil {
		u.First = all.host
		all.inOrder = append(all.inOrder, u)
	}
	u.last = h
	u.devices.Clear()
	if h.name != "" {
		u.Hosts++
	}
}

// add counts an environment and its devices for its user.
func (all *allocations) add(u *allocation, h *hostView, env *envView) {
	all.begin(u, h)
	if u.settings.MaxEnvs != nil {
		u.Envs = append(u.Envs, all.env(h, env))
	}
	if u.settings.MaxDevices == nil && u.settings.MaxMemory == nil {
		return
	}
	for _, a := range env.Attachments {
		index := a.Device.Index
		d := all.device(u, h, a.Device)
		d.Envs = append(d.Envs, holdings.Attached{EID: env.env.EID, Leaves: h.draft.detaches(index, env.env.EID)})
		d.AddCapacity(a.GPUMemory, a.Device.TotalMemory)
		if a.Time.Compare(d.Newest) > 0 {
			d.Newest = a.Time
		}
		if d.Oldest.IsZero() || a.Time.Compare(d.Oldest) < 0 {
			d.Oldest = a.Time
		}
		d.Exempt = max(d.Exempt, h.exemptUses[deviceOfEnv{index, env.env.EID}])
	}
}

// env is an environment with what it loses if it is taken.
func (all *allocations) env(h *hostView, env *envView) holdings.Env {
	counted := holdings.Env{Host: all.host, EID: env.env.EID, Created: env.env.Creation, Cost: env.Cost(env.env.UID), Loses: all.losses.Next()}
	for _, a := range env.Attachments {
		index := a.Device.Index
		if h.sparesUse(env, index) || h.hidesOn(env, index) {
			continue
		}
		loss := holdings.Loss{Device: index, Processes: all.indices.Next()}
		for p := range env.On(index) {
			loss.Processes = append(loss.Processes, all.process(h, p))
		}
		counted.Loses = append(counted.Loses, loss)
	}
	return counted
}

// addUse counts a device that a process of the user uses, in an environment or in none. One that
// isn't attached and becomes free anyway doesn't count.
func (all *allocations) addUse(u *allocation, h *hostView, device *snapshot.Device, in *envView, p *snapshot.Process) {
	all.begin(u, h)
	if u.settings.MaxDevices == nil && u.settings.MaxMemory == nil {
		return
	}
	if u.devices.Get(device.Index) == nil && h.draft.terminates(p) {
		return
	}
	if d := all.device(u, h, device); !p.EnvUnknown { // then device has noted it
		all.addProcess(u, h, d, in, p)
	}
}

// device is a device of the host that is being counted, added if it is new.
func (all *allocations) device(u *allocation, h *hostView, device *snapshot.Device) *holdings.Device {
	if d := u.devices.Get(device.Index); d != nil {
		return d
	}
	d := all.devices.Next()
	*d = holdings.Device{Host: all.host, Index: device.Index, Envs: all.attached.Next(), Processes: all.uses.Next()}
	for _, p := range h.unknownOn[device.Index] {
		switch h.userOf(p) {
		case "":
			d.Unknown = max(d.Unknown, contents.Reported)
		case u.Name:
			d.Unknown = contents.Proven
		}
	}
	u.Devices = append(u.Devices, d)
	u.devices.Set(device.Index, d)
	all.unsettled = append(all.unsettled, unsettled{d, device.TotalMemory})
	return d
}

// settle ends the counting of what users have on a host.
func (all *allocations) settle() {
	for _, u := range all.unsettled {
		u.Settle(u.total, all.Processes)
	}
	all.unsettled = all.unsettled[:0]
}
