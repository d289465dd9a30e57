package enforce

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/caps"
	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// held is what one user has on all hosts. A device counts once, however many environments are attached to it.
type held struct {
	user     snapshot.Username
	number   int       // differs from user to user
	settings *Settings // nil for a user without caps, for whom nothing is counted
	envs     []heldEnv
	devices  []*caps.HeldDevice // by host

	last *hostView                                 // the host that was counted last,
	here map[snapshot.DeviceIndex]*caps.HeldDevice // and the user's devices there
}

// heldEnv is an environment of a user.
type heldEnv struct {
	*envView
	h     *hostView
	owner *held
	cost  int8 // of losing its devices
	since time.Time
}

// counting is what users have.
type counting struct {
	*judgement
	byUser     map[snapshot.Username]*held
	inOrder    []*held // those with caps who have something
	list       []*Cap  // of the policy
	bases      map[*Cap]base
	models     map[string]int // a number for each model that somebody has
	selections map[*Cap]*selection
	served     map[string]bool // waits that get what they lack
	booked     map[*hostView][]booking
	people     map[*hostView][]*held // who has something there, and caps
	owners     map[*envView]*held
	forWaits   []forWait
	uncounted  Uncounted
	// reserved are devices that people hold within own reservations that run.
	reserved map[*caps.HeldDevice]bool
}

// countHeld counts what the users have who have caps, in the order in which they appear. An environment without a user
// name counts for no user; the processes in it count for their own users.
func newCounting(j *judgement) *counting {
	c := &counting{
		judgement: j, byUser: make(map[snapshot.Username]*held), list: j.policy.Caps(j.now),
		bases: make(map[*Cap]base), served: make(map[string]bool), booked: make(map[*hostView][]booking),
		reserved: make(map[*caps.HeldDevice]bool), models: make(map[string]int), selections: make(map[*Cap]*selection),
		people: make(map[*hostView][]*held), owners: make(map[*envView]*held),
	}
	c.findBookings()
	for _, h := range j.hosts {
		c.count(h)
	}
	return c
}

// of finds a user, and asks the policy about one who is new.
func (c *counting) of(user snapshot.Username) *held {
	user = c.policy.Account(user)
	if u := c.byUser[user]; u != nil {
		return u
	}
	u := &held{user: user, number: len(c.byUser)}
	c.byUser[user] = u
	s := c.policy.Settings(Query{User: user, At: c.now})
	_, exempt := c.policy.Exempt(Subject{User: user})
	if !exempt && (len(c.list)+len(c.booked) > 0 || s.MaxDevices != nil || s.MaxMemory != nil || s.MaxEnvs != nil) {
		u.settings = s
	}
	return u
}

// count counts what users have on a host.
func (c *counting) count(h *hostView) {
	for _, env := range h.inOrder {
		if env.env.Username == "" {
			c.note(h, "environment %s has no user name, so no cap counts it", text.Shown(string(env.env.EID)))
			continue
		}
		u := c.of(env.env.Username)
		if c.owners[env] = u; u.settings != nil {
			c.addEnv(u, h, env)
		}
	}
	c.addUses(h)
	c.addMore(h)
}

// addEnv counts an environment and its devices for its user.
func (c *counting) addEnv(u *held, h *hostView, env *envView) {
	c.begin(u, h)
	u.envs = append(u.envs, heldEnv{env, h, u, env.Cost(env.env.UID), c.since(h, ofEnvironment, env.env.EID, env.env.Since)})
	for _, a := range env.Attachments {
		d := c.device(u, h, a.Device)
		d.Envs = append(d.Envs, env.env.EID)
		d.Capacity = caps.Sum(d.Capacity, a.GPUMemory, a.Device.TotalMemory)
		// To the minute, since hosts that are looked at for the first time are so one after the other.
		at := snapshot.DateOf(c.since(h, a.Device.Key(), env.env.EID, a.Since).UTC().Truncate(time.Minute))
		if cmp.Or(at.Compare(d.Newest), a.Time.Compare(d.Written)) > 0 {
			d.Newest, d.Written = at, a.Time
		}
		d.Exempt = max(d.Exempt, h.exemptUses[deviceOfEnv{a.Device.Index, env.env.EID}])
	}
}

// addUses counts the devices that the users' processes use in a registered environment, or claim to. Otherwise a
// user could evade the caps by registering environments under another user's name. Processes whose environment is
// unknown count too, and never end for it. Hosts with genv 1.4.3 report no uids: there only attachments count.
func (c *counting) addUses(h *hostView) {
	for i := range h.snapshot.Processes {
		p, env := &h.snapshot.Processes[i], h.in[i]
		if h.exempt[p.PID] {
			continue
		}
		user := c.policy.Account(h.userOf(p)) // a host may report another of its names
		if u := c.owners[env]; u != nil && u.user != user && u.settings != nil {
			for _, a := range env.Attachments { // another user's or root's: it ends with what is attached
				if d := u.here[a.Device.Index]; d != nil && p.Uses(d.Index) != nil {
					c.addProcess(u, d, env, p)
				}
			}
		}
		switch {
		case user == "":
		case env != nil || h.claimed(p) != nil || p.EnvUnknown:
			c.addUsesOf(c.of(user), h, env, p)
		case h.counted(p) != "":
			c.addUsesOf(c.of(user), h, nil, p)
		}
	}
}

// addMore counts the devices that users use by what isn't in the snapshot.
func (c *counting) addMore(h *hostView) {
	for _, p := range h.more {
		if user := c.policy.Account(h.userOf(p)); user != "" {
			c.addUsesOf(c.of(user), h, nil, p)
		}
	}
}

// addUsesOf counts the devices that a process of the user uses, in an environment or in none. A device that isn't
// attached doesn't count if its processes end anyway.
func (c *counting) addUsesOf(u *held, h *hostView, in *envView, p *snapshot.Process) {
	if u.settings == nil {
		return
	}
	for _, use := range p.Usage {
		device := h.devices[use.Index]
		if device == nil || h.ignoresUse(use) {
			continue
		}
		c.begin(u, h)
		if u.here[use.Index] == nil && h.Terminates(p) {
			continue
		}
		d := c.device(u, h, device)
		switch counts := h.counted(p) != ""; {
		case counts && !c.attached(u, in, use.Index):
			start := snapshot.DateOf(h.snapshot.When(p.Start, snapshot.Date{}).UTC().Truncate(time.Second))
			if start.Compare(d.Newest) > 0 {
				d.Newest, d.Written = start, snapshot.Date{}
			}
			fallthrough
		case !p.EnvUnknown: // then device has noted it
			c.addProcess(u, d, in, p)
		}
	}
}

// addProcess adds a process, in an environment or in none, that ends when the user loses the device.
func (c *counting) addProcess(u *held, d *caps.HeldDevice, in *envView, p *snapshot.Process) {
	d.Uses = append(d.Uses, caps.Use{Process: p, Attached: c.attached(u, in, d.Index)})
	if !p.Unproved() { // else any user may have started it
		d.Used = caps.Sum(d.Used, p.Uses(d.Index).Memory, snapshot.Memory{})
	}
}

// attached reports whether an environment of the user's, or nil, is attached to a device.
func (c *counting) attached(u *held, env *envView, index snapshot.DeviceIndex) bool {
	return env != nil && c.policy.Account(env.env.Username) == u.user && env.Attached(index)
}

// begin begins to count what the user has on a host. All of one host is counted before the next one begins.
func (c *counting) begin(u *held, h *hostView) {
	if u.last == h {
		return
	}
	if u.last == nil {
		c.inOrder = append(c.inOrder, u)
	}
	u.last = h
	c.people[h] = append(c.people[h], u)
	u.here = make(map[snapshot.DeviceIndex]*caps.HeldDevice)
}

// device is a device of the host that is being counted, added if it is new.
func (c *counting) device(u *held, h *hostView, device *snapshot.Device) *caps.HeldDevice {
	if d := u.here[device.Index]; d != nil {
		return d
	}
	model, known := c.models[modelOf(device)]
	if !known {
		model = len(c.models)
		c.models[modelOf(device)] = model
	}
	d := &caps.HeldDevice{Device: device, Host: h, Owner: u.number, Model: model}
	for _, p := range h.unknownOn[device.Index] {
		if h.counted(p) != "" {
			continue // whatever its environment is
		}
		switch c.policy.Account(h.userOf(p)) {
		case "":
			d.Unknown = max(d.Unknown, contents.Reported)
		case u.user:
			d.Unknown = contents.Proven
		}
	}
	u.devices = append(u.devices, d)
	u.here[device.Index] = d
	return d
}

// markIdle marks the devices that have been idle for as long as the rule about that allows, whether or not it acts.
func (c *counting) markIdle() {
	for _, u := range c.inOrder {
		var inUse []*caps.HeldDevice
		for _, d := range u.devices {
			if d.Idle = c.isIdle(u, d); !d.Idle {
				inUse = append(inUse, d)
			}
		}
		for _, busy := range inUse { // a process that uses it is in use on all that it uses
			for _, d := range u.devices {
				d.Idle = d.Idle && (d.Host != busy.Host || !slices.ContainsFunc(d.Uses,
					func(use caps.Use) bool { return use.Process.Uses(busy.Index) != nil }))
			}
		}
	}
}

func (c *counting) isIdle(u *held, d *caps.HeldDevice) bool {
	h := hostOf(d)
	rule := h.ask(c.policy, u.user, c.now).Idle
	if rule == nil {
		return false
	}
	return c.next.Uses[useKey(h, u.user, d.Device)].idleFor(h.at) >= rule.After
}
