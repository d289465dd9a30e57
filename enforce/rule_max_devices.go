package enforce

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// holding is what one user has on all hosts together. A device counts once for
// a user, however many of the user's environments are attached to it.
type holding struct {
	user    snapshot.Username
	hosts   int // on which the user has environments
	devices []*heldDevice
}

// heldDevice is a device that a user's environments are attached to.
type heldDevice struct {
	host   *hostView
	order  int // of the host in the cluster
	index  snapshot.DeviceIndex
	newest snapshot.Date
	envs   []*envView
	users  []*snapshot.Process // the user's processes on it
	// doubtful: a process whose environment is unknown uses it and might be
	// the user's, so that nobody may call the device idle.
	doubtful bool
	taken    bool
}

// maxDevices takes devices from users who are over their cap: never more than
// the excess, and those first whose loss hurts least.
func (e *evaluation) maxDevices() {
	if e.policy.MaxDevicesPerUser == nil && len(e.policy.MaxDevicesForUser) == 0 {
		return
	}
	for _, u := range e.holdings() {
		limit, capped := e.policy.MaxDevices(u.user)
		if capped && len(u.devices) > limit {
			e.take(u, limit)
		}
	}
}

func (e *evaluation) take(u *holding, limit int) {
	f := Finding{
		Rule: RuleMaxDevicesPerUser, User: u.user,
		Count: &CountExcess{Used: len(u.devices), Limit: limit, Hosts: u.hosts},
	}
	for _, d := range u.choose(len(u.devices) - limit) {
		for _, env := range d.envs {
			f.Detach = append(f.Detach, DeviceRef{d.host.name, d.index, env.env.EID})
		}
		for _, p := range d.users {
			f.Terminate = appendOnce(f.Terminate, ProcessRef{d.host.name, p.PID})
		}
	}
	e.find(f)
}

// choose takes n devices: idle ones first, then those whose processes the plan
// ends anyway, then the others; within each the newest attachment first, then
// by host and index. Once a busy device is taken, its processes end, and what
// else they alone used on that host goes before the next busy one.
func (u *holding) choose(n int) []*heldDevice {
	queue := slices.Clone(u.devices)
	slices.SortStableFunc(queue, func(a, b *heldDevice) int {
		return cmp.Or(cmp.Compare(a.cost(), b.cost()), b.newest.Compare(a.newest), cmp.Compare(a.order, b.order), cmp.Compare(a.index, b.index))
	})
	byHost := make(map[*hostView][]*heldDevice)
	for _, d := range queue {
		byHost[d.host] = append(byHost[d.host], d)
	}
	var chosen []*heldDevice
	take := func(d *heldDevice) {
		if !d.taken && len(chosen) < n {
			d.detach()
			chosen = append(chosen, d)
		}
	}
	for _, d := range queue {
		if len(chosen) == n {
			break
		}
		take(d)
		if len(d.users) == 0 {
			continue
		}
		for _, other := range byHost[d.host] {
			if other.cost() < costBusy {
				take(other)
			}
		}
	}
	return chosen
}

// What it costs the user to lose a device, the least first.
const (
	costIdle = iota
	costEndsAnyway
	costBusy
)

func (d *heldDevice) cost() int {
	switch {
	case d.doubtful:
		return costBusy
	case len(d.users) == 0:
		return costIdle
	}
	for _, p := range d.users {
		if !d.host.draft.kills(p) {
			return costBusy
		}
	}
	return costEndsAnyway
}

// detach puts the device's loss into the host's report: the user's attachments,
// and the user's processes that would go on using it.
func (d *heldDevice) detach() {
	d.taken = true
	for _, env := range d.envs {
		d.host.draft.detach = append(d.host.draft.detach, Detachment{Device: d.index, Environment: *env.env})
	}
	for _, p := range d.users {
		d.host.draft.kill(p)
	}
}

// holdings lists the users with their devices, in the order in which the users
// appear in the cluster. An environment whose host could not name its user
// counts for nobody.
func (e *evaluation) holdings() []*holding {
	var list []*holding
	byUser := make(map[snapshot.Username]*holding)
	for order, h := range e.hosts {
		doubtful := h.doubtfulDevices()
		held := make(map[snapshot.Username]map[snapshot.DeviceIndex]*heldDevice)
		for i := range h.inOrder {
			env := &h.inOrder[i]
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
			if held[user] == nil {
				held[user] = make(map[snapshot.DeviceIndex]*heldDevice)
				if h.name != "" {
					u.hosts++
				}
			}
			u.add(held[user], h, order, env, doubtful)
		}
	}
	return list
}

// add counts an environment's devices to its user.
func (u *holding) add(held map[snapshot.DeviceIndex]*heldDevice, h *hostView, order int, env *envView, doubtful map[snapshot.DeviceIndex]bool) {
	for _, a := range env.attachments {
		d := held[a.device]
		if d == nil {
			d = &heldDevice{host: h, order: order, index: a.device, doubtful: doubtful[a.device]}
			held[a.device] = d
			u.devices = append(u.devices, d)
		}
		d.envs = append(d.envs, env)
		if a.Time.Compare(d.newest) > 0 {
			d.newest = a.Time
		}
		for _, p := range env.processes {
			if p.Uses(a.device) != nil {
				d.users = append(d.users, p)
			}
		}
	}
}

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

func appendOnce(refs []ProcessRef, ref ProcessRef) []ProcessRef {
	if slices.Contains(refs, ref) {
		return refs
	}
	return append(refs, ref)
}
