package enforce

import (
	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// allocation is what one user has on all hosts together. A device counts once for
// a user, however many of the user's environments are attached to it.
type allocation struct {
	user    snapshot.Username
	hosts   int // on which the user has environments
	envs    []userEnv
	devices []*allocatedDevice

	last *hostView                           // the host that was counted last,
	here contents.ByDevice[*allocatedDevice] // and the user's devices there
}

// userEnv is an environment of the user's, on its host.
type userEnv struct {
	*envView
	host *hostView
}

// allocatedDevice is a device that a user's environments are attached to, or that
// the user's processes in registered environments use.
type allocatedDevice struct {
	user      snapshot.Username
	host      *hostView
	device    *snapshot.Device
	newest    snapshot.Date
	envs      []attachedEnv       // the environments that are attached to it
	processes []*snapshot.Process // those that end when the user loses it
	// unknown is what processes of unknown environments prove about its use.
	unknown contents.Evidence
	// exempt is what exempt processes of the user's environments prove about its
	// use: no cap takes it.
	exempt contents.Evidence
	// costAtFirst is what losing it costs while nothing else is chosen.
	costAtFirst int8

	// Most devices are used by one environment with one process: these are
	// where envs and processes begin, so that they need no memory of their own.
	firstEnv     [1]attachedEnv
	firstProcess [1]*snapshot.Process
}

// attachedEnv is an environment with its attachment to a device.
type attachedEnv struct {
	*envView
	attachment *snapshot.Attachment
}

// leaves reports whether the plan takes the device from the user anyway, for a reason
// other than the caps, so that it no longer counts. Processes that use it without an
// attachment must end in that plan too.
func (d *allocatedDevice) leaves() bool {
	if len(d.envs) == 0 && d.unknown == contents.Proven {
		return false
	}
	for _, env := range d.envs {
		if !d.host.draft.detaches(d.device.Index, env.env.EID) {
			return false
		}
	}
	for _, p := range d.processes {
		env := d.host.environmentOf(p)
		attached := env != nil && env.env.Username == d.user && env.Attached(d.device.Index) // so it is one of d.envs
		if !attached && !d.host.draft.terminates(p) {
			return false
		}
	}
	return true
}

// allocations are what users have, by user.
type allocations struct {
	list   []*allocation // in the order in which the users appear in the cluster
	byUser map[snapshot.Username]*allocation
}

// allocations lists the users with what they have. An environment whose user has no
// name counts for no user; the processes in it count for their own users.
func (j *judgement) allocations() []*allocation {
	users := allocations{byUser: make(map[snapshot.Username]*allocation)}
	for _, h := range j.hosts {
		for _, env := range h.inOrder {
			if env.env.Username == "" {
				j.note(h, "environment %s has no user name, so no cap counts it", text.Shown(string(env.env.EID)))
				continue
			}
			users.of(env.env.Username).add(h, env)
		}
		users.addUses(h)
	}
	return users.list
}

func (u *allocations) of(user snapshot.Username) *allocation {
	found := u.byUser[user]
	if found == nil {
		found = &allocation{user: user}
		u.byUser[user] = found
		u.list = append(u.list, found)
	}
	return found
}

// addUses counts, for each user, the devices that the user's processes use, if
// these are in a registered environment or claim to be. Otherwise a user could
// evade the caps by registering environments under another user's name. Processes
// whose environment is unknown count too, and never end for it.
func (u *allocations) addUses(h *hostView) {
	for i := range h.snapshot.Processes {
		p := &h.snapshot.Processes[i]
		user := h.userOf(p)
		if user == "" || h.exempt[p.PID] || h.in[i] == nil && h.claimed(p) == nil && !p.EnvUnknown {
			continue
		}
		for _, use := range p.Usage {
			if device := h.devices[use.Index]; device != nil {
				u.of(user).addUse(h, device, p)
			}
		}
	}
}

// begin starts to count what the user has on a host. All of one host is counted
// before the next one begins.
func (u *allocation) begin(h *hostView) {
	if u.last == h {
		return
	}
	u.last = h
	u.here.Clear()
	if h.name != "" {
		u.hosts++
	}
}

// add counts an environment and its devices for its user.
func (u *allocation) add(h *hostView, env *envView) {
	u.begin(h)
	u.envs = append(u.envs, userEnv{env, h})
	for _, a := range env.Attachments {
		d := u.device(h, a.Device)
		d.envs = append(d.envs, attachedEnv{env, a.Attachment})
		if a.Time.Compare(d.newest) > 0 {
			d.newest = a.Time
		}
		for p := range env.On(a.Device.Index) {
			if h.userOf(p) != u.user { // the others are counted by addUses
				d.processes = append(d.processes, p)
			}
		}
		d.exempt = max(d.exempt, h.exemptUses[deviceOfEnv{a.Device.Index, env.env.EID}])
	}
}

// addUse counts a device that a process of the user uses. One that isn't
// attached and becomes free anyway doesn't count.
func (u *allocation) addUse(h *hostView, device *snapshot.Device, p *snapshot.Process) {
	u.begin(h)
	if u.here.Get(device.Index) == nil && h.draft.terminates(p) {
		return
	}
	if d := u.device(h, device); !p.EnvUnknown { // then device has noted it
		d.processes = append(d.processes, p)
	}
}

// device is a device of the host that is being counted, added if it is new.
func (u *allocation) device(h *hostView, device *snapshot.Device) *allocatedDevice {
	if d := u.here.Get(device.Index); d != nil {
		return d
	}
	d := &allocatedDevice{user: u.user, host: h, device: device}
	d.envs, d.processes = d.firstEnv[:0], d.firstProcess[:0]
	for _, p := range h.unknownOn[device.Index] {
		switch h.userOf(p) {
		case "":
			d.unknown = max(d.unknown, contents.Reported)
		case u.user:
			d.unknown = contents.Proven
		}
	}
	u.devices = append(u.devices, d)
	u.here.Add(device.Index, d)
	return d
}

// usedBytes is how much memory the user's processes use on the device; not known
// where the driver doesn't report it of each.
func (d *allocatedDevice) usedBytes() (n int64, known bool) {
	for _, p := range d.processes {
		u := p.Uses(d.device.Index)
		if p.Unproved() {
			continue // any user may have started it
		}
		if u == nil || !u.Memory.Known() {
			return 0, false
		}
		n += u.Memory.Bytes()
	}
	return n, true
}

// bytes is how much device memory the user has by this device: the sum of what
// the environments may use, or what its processes use if that is more, and at
// most all of it. Unknown is not zero.
func (d *allocatedDevice) bytes() (n int64, known bool) {
	total := d.device.TotalMemory
	for _, by := range d.envs {
		capacity := total
		if by.attachment.GPUMemory.Known() {
			capacity = by.attachment.GPUMemory
		}
		if !capacity.Known() {
			return 0, false
		}
		n += capacity.Bytes()
	}
	used, known := d.usedBytes()
	if n = max(n, used); total.Known() {
		n = min(n, total.Bytes())
	}
	return n, known || len(d.envs) > 0
}
