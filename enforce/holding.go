package enforce

import (
	"github.com/seed-3119e985/genv/snapshot"
)

// holding is what one user has on all hosts together. A device counts once for
// a user, however many of the user's environments are attached to it.
type holding struct {
	user    snapshot.Username
	hosts   int // on which the user has environments
	envs    []userEnv
	devices []*heldDevice

	last *hostView // whose environments were counted last,
	from int       // and where its devices begin
}

// userEnv is an environment of the user's, on its host.
type userEnv struct {
	*envView
	host  *hostView
	order int // of the host in the cluster
}

// heldDevice is a device that a user's environments are attached to.
type heldDevice struct {
	host   *hostView
	order  int // of the host in the cluster
	device *snapshot.Device
	newest snapshot.Date
	envs   []heldBy
	users  []*snapshot.Process // the user's processes on it
	// doubtful: a process whose environment is unknown uses it and might be
	// the user's, so that nobody may call the device idle.
	doubtful bool
	// untouchable: an exempt process of the user's uses it.
	untouchable bool

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
// other than the caps: they count no more.
func (d *heldDevice) going() bool {
	for _, env := range d.envs {
		if !d.host.draft.takes(d.device.Index, env.env.EID) {
			return false
		}
	}
	return true
}

// holdings lists the users with what they hold, in the order in which the users
// appear in the cluster. An environment whose host could not name its user
// counts for nobody.
func (e *evaluation) holdings() []*holding {
	var list []*holding
	byUser := make(map[snapshot.Username]*holding)
	for order, h := range e.hosts {
		doubtful := h.doubtfulDevices()
		for _, env := range h.inOrder {
			user := env.env.Username
			if user == "" {
				e.note(h, "environment %s has no user name, so no cap counts it", env.env.EID)
				continue
			}
			u := byUser[user]
			if u == nil {
				u = &holding{user: user}
				byUser[user] = u
				list = append(list, u)
			}
			u.add(h, order, env, doubtful)
		}
	}
	return list
}

// add counts an environment with its devices to its user. Those of one host come
// one after the other.
func (u *holding) add(h *hostView, order int, env *envView, doubtful map[snapshot.DeviceIndex]bool) {
	if u.last != h {
		u.last, u.from = h, len(u.devices)
		if h.name != "" {
			u.hosts++
		}
	}
	u.envs = append(u.envs, userEnv{env, h, order})
	for _, a := range env.attachments {
		index := a.device.Index
		d := u.here(index)
		if d == nil {
			d = &heldDevice{host: h, order: order, device: a.device, doubtful: doubtful[index]}
			d.envs, d.users = d.firstEnv[:0], d.firstUser[:0]
			u.devices = append(u.devices, d)
		}
		d.envs = append(d.envs, heldBy{env, a.Attachment})
		if a.Time.Compare(d.newest) > 0 {
			d.newest = a.Time
		}
		for _, p := range env.processes {
			if p.Uses(index) != nil {
				d.users = append(d.users, p)
			}
		}
		d.untouchable = d.untouchable || h.keeps(env, index)
	}
}

// here is a device of the host that is being counted; nil if it is new.
func (u *holding) here(index snapshot.DeviceIndex) *heldDevice {
	for _, d := range u.devices[u.from:] {
		if d.device.Index == index {
			return d
		}
	}
	return nil
}

// keeps says whether an exempt process of the environment uses a device.
func (h *hostView) keeps(env *envView, index snapshot.DeviceIndex) bool {
	return h.keptUses[deviceOfEnv{index, env.env.EID}]
}

// doubtfulDevices are those that processes of unknown environments use.
func (h *hostView) doubtfulDevices() map[snapshot.DeviceIndex]bool {
	var doubtful map[snapshot.DeviceIndex]bool
	for i := range h.snapshot.Processes {
		p := &h.snapshot.Processes[i]
		for _, u := range p.Usage {
			if p.EnvUnknown {
				if doubtful == nil {
					doubtful = make(map[snapshot.DeviceIndex]bool)
				}
				doubtful[u.Index] = true
			}
		}
	}
	return doubtful
}

// bytes is how much device memory the user has by this device: the sum of what
// the environments may use, and at most all of it. Unknown is not zero.
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
	if total.Known() {
		n = min(n, total.Bytes())
	}
	return n, true
}
