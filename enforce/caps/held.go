package caps

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// held is what one user has on all hosts. A device counts once, however many environments are attached to it.
type held struct {
	user     snapshot.Username
	number   int               // differs from user to user
	settings *enforce.Settings // nil for a user without caps, for whom nothing is counted
	envs     []heldEnv
	devices  []*HeldDevice // by host

	last *judging.HostView                    // the host that was counted last,
	here map[snapshot.DeviceIndex]*HeldDevice // and the user's devices there
}

type heldEnv struct {
	*judging.EnvView
	h     *judging.HostView
	owner *held
	cost  int8 // of losing its devices
	since time.Time
}

// counting is what users have. It is an enforce.Counts.
type counting struct {
	*judging.Judgement
	byUser     map[snapshot.Username]*held
	inOrder    []*held        // those with caps who have something
	list       []*enforce.Cap // of the policy
	bases      map[*enforce.Cap]base
	models     map[string]int // a number for each model that somebody has
	selections map[*enforce.Cap]*selection
	served     map[string]*need // waits that get what they lack, by their keys
	booked     map[*judging.HostView][]booking
	people     map[*judging.HostView][]*held // who has something there, and caps
	owners     map[*judging.EnvView]*held
	forWaits   []*need
	reserved   map[*HeldDevice]bool // held within own reservations that run
	counted    map[countKey]*counted
	gpus       map[countKey][]snapshot.DeviceIndex
}

// newCounting counts what the users with caps have, in the order in which they appear. An environment without a user
// name counts for no user; its processes count for their own.
func newCounting(j *judging.Judgement) *counting {
	c := &counting{
		Judgement: j, byUser: make(map[snapshot.Username]*held), list: j.Policy.Caps(j.Now),
		bases: make(map[*enforce.Cap]base), selections: make(map[*enforce.Cap]*selection),
		served: make(map[string]*need), booked: make(map[*judging.HostView][]booking),
		reserved: make(map[*HeldDevice]bool), models: make(map[string]int),
		people: make(map[*judging.HostView][]*held), owners: make(map[*judging.EnvView]*held),
		counted: make(map[countKey]*counted), gpus: make(map[countKey][]snapshot.DeviceIndex),
	}
	c.findBookings()
	for _, h := range j.Hosts {
		c.count(h)
	}
	return c
}

// of finds a user, and asks the policy about one who is new.
func (c *counting) of(user snapshot.Username) *held {
	user = c.Policy.Account(user)
	if u := c.byUser[user]; u != nil {
		return u
	}
	u := &held{user: user, number: len(c.byUser), here: make(map[snapshot.DeviceIndex]*HeldDevice)}
	c.byUser[user] = u
	s := c.Policy.Settings(enforce.Query{User: user, At: c.Now})
	_, exempt := c.Policy.Exempt(enforce.Subject{User: user})
	if !exempt && (len(c.list)+len(c.booked) > 0 || s.MaxDevices != nil || s.MaxMemory != nil || s.MaxEnvs != nil) {
		u.settings = s
	}
	return u
}

func (c *counting) count(h *judging.HostView) {
	for _, env := range h.InOrder {
		if env.Env.Username == "" {
			c.Note(h, "environment %s has no user name, so no cap counts it", text.Shown(string(env.Env.EID)))
			continue
		}
		u := c.of(env.Env.Username)
		if c.owners[env] = u; u.settings != nil {
			c.addEnv(u, h, env)
		}
	}
	c.addUses(h)
	for _, p := range h.More { // what isn't in the snapshot
		if user := c.Policy.Account(h.UserOf(p)); user != "" {
			c.addUsesOf(c.of(user), h, nil, p)
		}
	}
}

func (c *counting) addEnv(u *held, h *judging.HostView, env *judging.EnvView) {
	c.begin(u, h)
	since := c.Since(h, judging.OfEnvironment, env.Env.EID, env.Env.Since)
	u.envs = append(u.envs, heldEnv{env, h, u, env.Cost(), since})
	for _, a := range env.Attachments {
		d := c.device(u, h, a.Device)
		d.Envs = append(d.Envs, env.Env.EID)
		d.Capacity = Sum(d.Capacity, a.GPUMemory, a.Device.TotalMemory)
		// To the minute: hosts that are looked at for the first time are so one after the other.
		at := snapshot.DateOf(c.Since(h, a.Device.Key(), env.Env.EID, a.Since).UTC().Truncate(time.Minute))
		if cmp.Or(at.Compare(d.Newest), a.Time.Compare(d.Written)) > 0 {
			d.Newest, d.Written = at, a.Time
		}
		d.Exempt = max(d.Exempt, env.ExemptUse(a.Device.Index))
	}
}

// addUses counts the devices that the users' processes use in a registered environment, or claim to: else a user could
// evade the caps by registering environments under another name. Processes of unknown environment count too, and never
// end for it. Where hosts report no uids, as 1.4.3, only attachments count.
func (c *counting) addUses(h *judging.HostView) {
	for i := range h.Snapshot.Processes {
		p, env := &h.Snapshot.Processes[i], h.In[i]
		if h.Exempt[p.PID] {
			continue
		}
		user := c.Policy.Account(h.UserOf(p)) // a host may report another of its names
		if u := c.owners[env]; u != nil && u.user != user && u.settings != nil {
			for _, a := range env.Attachments { // another user's or root's: it ends with what is attached
				if d := u.here[a.Device.Index]; d != nil && p.Uses(d.Index) != nil {
					c.addProcess(u, d, env, p)
				}
			}
		}
		switch {
		case user == "":
		case env != nil || h.Claimed(p) != nil || p.EnvUnknown:
			c.addUsesOf(c.of(user), h, env, p)
		case h.Counted(p) != "":
			c.addUsesOf(c.of(user), h, nil, p)
		}
	}
}

// addUsesOf counts the devices that a process of the user uses. One that isn't attached doesn't count if its processes
// end anyway.
func (c *counting) addUsesOf(u *held, h *judging.HostView, in *judging.EnvView, p *snapshot.Process) {
	if u.settings == nil {
		return
	}
	for _, use := range p.Usage {
		device := h.Devices[use.Index]
		if device == nil || h.IgnoresUse(use) {
			continue
		}
		c.begin(u, h)
		if u.here[use.Index] == nil && h.Terminates(p) {
			continue
		}
		d := c.device(u, h, device)
		switch counts := h.Counted(p) != ""; {
		case counts && !c.attached(u, in, use.Index):
			start := snapshot.DateOf(h.Snapshot.When(p.Start, snapshot.Date{}).UTC().Truncate(time.Second))
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
func (c *counting) addProcess(u *held, d *HeldDevice, in *judging.EnvView, p *snapshot.Process) {
	d.Uses = append(d.Uses, Use{Process: p, Attached: c.attached(u, in, d.Index)})
	if !p.StartedByUnknown() { // else any user may have started it
		d.Used = Sum(d.Used, p.Uses(d.Index).Memory, snapshot.Memory{})
	}
}

func (c *counting) attached(u *held, env *judging.EnvView, index snapshot.DeviceIndex) bool {
	return env != nil && c.Policy.Account(env.Env.Username) == u.user && env.Attached(index)
}

// begin begins to count what the user has on a host. One host is counted after the other.
func (c *counting) begin(u *held, h *judging.HostView) {
	if u.last == h {
		return
	}
	if u.last == nil {
		c.inOrder = append(c.inOrder, u)
	}
	u.last = h
	c.people[h] = append(c.people[h], u)
	clear(u.here)
}

func (c *counting) device(u *held, h *judging.HostView, device *snapshot.Device) *HeldDevice {
	if d := u.here[device.Index]; d != nil {
		return d
	}
	model, known := c.models[enforce.ModelOf(device)]
	if !known {
		model = len(c.models)
		c.models[enforce.ModelOf(device)] = model
	}
	d := &HeldDevice{Device: device, Host: h, Owner: u.number, Model: model}
	for _, p := range h.UnknownOn[device.Index] {
		if h.Counted(p) != "" {
			continue // whatever its environment is
		}
		switch c.Policy.Account(h.UserOf(p)) {
		case "":
			d.Unknown = max(d.Unknown, judging.Reported)
		case u.user:
			d.Unknown = judging.Proven
		}
	}
	u.devices = append(u.devices, d)
	u.here[device.Index] = d
	return d
}

// markIdle marks the devices that have been idle for as long as that rule allows, whether or not it acts. A process
// with another GPU in use is in use on all its GPUs.
func (c *counting) markIdle() {
	for _, u := range c.inOrder {
		var idle []*HeldDevice
		for _, d := range u.devices {
			rule := d.Host.Ask(u.user).Idle
			d.Idle = rule != nil &&
				c.Next.Uses[judging.UseKey(d.Host, u.user, d.Device)].IdleFor(d.Host.At) >= rule.After
			if d.Idle {
				idle = append(idle, d)
			}
		}
		if len(idle) == 0 {
			continue
		}
		inUse := slices.DeleteFunc(slices.Clone(u.devices), func(d *HeldDevice) bool { return d.Idle })
		for _, d := range idle {
			d.Idle = !slices.ContainsFunc(inUse, func(busy *HeldDevice) bool {
				uses := func(use Use) bool { return use.Process.Uses(busy.Index) != nil }
				return d.Host == busy.Host && slices.ContainsFunc(d.Uses, uses)
			})
		}
	}
}
