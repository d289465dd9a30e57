package enforce

import (
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// holding is what one user has on all hosts together. A device counts once for
// a user, however many of the user's environments are attached to it.
type holding struct {
	user    snapshot.Username
	hosts   int // on which the user has environments
	envs    []userEnv
	devices []*heldDevice

	last *hostView                            // the host that was counted last,
	here map[snapshot.DeviceIndex]*heldDevice // and the user's devices there
}

// userEnv is an environment of the user's, on its host.
type userEnv struct {
	*envView
	host  *hostView
	order int // of the host in the cluster
}

// heldDevice is a device that a user's environments are attached to, or that
// the user's processes in registered environments use.
type heldDevice struct {
	user   snapshot.Username
	host   *hostView
	order  int // of the host in the cluster
	device *snapshot.Device
	newest snapshot.Date
	envs   []heldBy            // the environments that are attached to it
	users  []*snapshot.Process // those that end when the user loses it
	// unknown is what processes of unknown environments prove about its use.
	unknown evidence
	// exempt is what exempt processes of the user's environments prove about its
	// use: no cap takes it.
	exempt evidence

	// Most devices are held by one environment with one process: these are
	// where envs and users begin, so that they need no memory of their own.
	firstEnv  [1]heldBy
	firstUser [1]*snapshot.Process
}

// heldBy is an environment with its attachment to a device.
type heldBy struct {
	*envView
	attachment *snapshot.Attachment
}

// going are devices that the report takes from the user anyway, for a reason
// other than the caps, so they no longer count. Processes that use one without
// an attachment must end in that plan too.
func (d *heldDevice) going() bool {
	if len(d.envs) == 0 && d.unknown == proven {
		return false
	}
	for _, env := range d.envs {
		if !d.host.draft.takes(d.device.Index, env.env.EID) {
			return false
		}
	}
	for _, p := range d.users {
		env := d.host.environmentOf(p)
		attached := env != nil && env.env.Username == d.user && env.attached(d.device.Index) // so it is one of d.envs
		if !attached && !d.host.draft.kills(p) {
			return false
		}
	}
	return true
}

// holdings are what users have, by user.
type holdings struct {
	list   []*holding // in the order in which the users appear in the cluster
	byUser map[snapshot.Username]*holding
}

// holdings lists the users with what they hold. An environment whose user has no
// name counts for no user; the processes in it count for their own users.
func (e *evaluation) holdings() []*holding {
	users := holdings{byUser: make(map[snapshot.Username]*holding)}
	for order, h := range e.hosts {
		for _, env := range h.inOrder {
			if env.env.Username == "" {
				e.note(h, "environment %s has no user name, so no cap counts it", text.Shown(string(env.env.EID)))
				continue
			}
			users.of(env.env.Username).add(h, order, env)
		}
		users.addUses(h, order)
	}
	return users.list
}

func (u *holdings) of(user snapshot.Username) *holding {
	found := u.byUser[user]
	if found == nil {
		found = &holding{user: user, here: make(map[snapshot.DeviceIndex]*heldDevice)}
		u.byUser[user] = found
		u.list = append(u.list, found)
	}
	return found
}

// addUses counts, for each user, the devices that the user's processes use, if
// these are in a registered environment or claim to be. Otherwise a user could
// evade the caps by registering environments under another user's name. Processes
// whose environment is unknown count too, and never end for it.
func (u *holdings) addUses(h *hostView, order int) {
	for i := range h.snapshot.Processes {
		p := &h.snapshot.Processes[i]
		user := h.userOf(p)
		if user == "" || h.exempt[p.PID] || h.in[i] == nil && h.claimed(p) == nil && !p.EnvUnknown {
			continue
		}
		for _, use := range p.Usage {
			if device := h.devices[use.Index]; device != nil {
				u.of(user).addUse(h, order, device, p)
			}
		}
	}
}

// begin starts to count what the user has on a host. All of one host is counted
// before the next one begins.
func (u *holding) begin(h *hostView) {
	if u.last == h {
		return
	}
	u.last = h
	clear(u.here)
	if h.name != "" {
		u.hosts++
	}
}

// add counts an environment and its devices for its user.
func (u *holding) add(h *hostView, order int, env *envView) {
	u.begin(h)
	u.envs = append(u.envs, userEnv{env, h, order})
	for _, a := range env.attachments {
		d := u.device(h, order, a.device)
		d.envs = append(d.envs, heldBy{env, a.Attachment})
		if a.Time.Compare(d.newest) > 0 {
			d.newest = a.Time
		}
		for p := range env.on(a.device.Index) {
			if h.userOf(p) != u.user { // the others are counted by addUses
				d.users = append(d.users, p)
			}
		}
		d.exempt = max(d.exempt, h.exemptUses[deviceOfEnv{a.device.Index, env.env.EID}])
	}
}

// addUse counts a device that a process of the user uses. One that isn't
// attached and becomes free anyway doesn't count.
func (u *holding) addUse(h *hostView, order int, device *snapshot.Device, p *snapshot.Process) {
	u.begin(h)
	if u.here[device.Index] == nil && h.draft.kills(p) {
		return
	}
	if d := u.device(h, order, device); !p.EnvUnknown { // then device has noted it
		d.users = append(d.users, p)
	}
}

// device is a device of the host that is being counted, added if it is new.
func (u *holding) device(h *hostView, order int, device *snapshot.Device) *heldDevice {
	if d := u.here[device.Index]; d != nil {
		return d
	}
	d := &heldDevice{user: u.user, host: h, order: order, device: device}
	d.envs, d.users = d.firstEnv[:0], d.firstUser[:0]
	for _, p := range h.unknownOn[device.Index] {
		switch h.userOf(p) {
		case "":
			d.unknown = max(d.unknown, reported)
		case u.user:
			d.unknown = proven
		}
	}
	u.devices = append(u.devices, d)
	u.here[device.Index] = d
	return d
}

// sparesUse says whether an exempt process of the environment uses a device.
func (h *hostView) sparesUse(env *envView, index snapshot.DeviceIndex) bool {
	return h.exemptUses[deviceOfEnv{index, env.env.EID}] != unused
}

// counts says whether the device counts for the user's caps. One that can't be
// taken from the user, since exempt processes use it, counts only if one of the
// user's own uid does: otherwise a job elsewhere could have to end for it.
func (d *heldDevice) counts() bool {
	return !d.going() && (d.exempt != reported || d.busy())
}

// busy says whether the device is proven to be in use, by processes that the plan
// doesn't end anyway.
func (d *heldDevice) busy() bool { return new(choice).cost(d) == costBusy }

// usedBytes is how much memory the user's processes use on the device; not known
// where the driver doesn't report it of each.
func (d *heldDevice) usedBytes() (n int64, known bool) {
	for _, p := range d.users {
		u := p.Uses(d.device.Index)
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
func (d *heldDevice) bytes() (n int64, known bool) {
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
