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

// person is what a user has on all hosts. A device counts once, whatever the number of attached environments.
type person struct {
	user     snapshot.Username // an account
	number   int               // unique
	settings *enforce.Settings // nil for a user without caps, who isn't counted
	envs     []*judging.EnvView
	devices  []*personDevice   // by host
	last     *judging.HostView // the last host with something of the user
}

// Counting is what users have. It implements enforce.Counts.
type Counting struct {
	*judging.Judgement
	byUser       map[snapshot.Username]*person // by account
	inOrder      []*person                     // those with caps who have something
	caps         []*policyCap                  // own, then list
	own, list    []*policyCap                  // those with their own keys, and those of the list
	models       map[string]uint64             // bits of the caps of the list that cover a model
	served       map[string]*wait              // waits that get what they lack, by key
	reservations map[*judging.HostView][]*snapshot.Reservation
	people       [][]*person // with caps, by the position of a host where they have something
	onHosts      []*person   // the array of these lists
	waits        []*wait
	ownReserved  map[*personDevice]bool // held within own running reservations
	counted      map[countKey]*counted

	// For the host being counted: its devices, also by deviceKey, their pool, and the bits of caps that cover it.
	here       []*personDevice
	at         map[int]*personDevice
	devicePool []personDevice
	about      uint64
	// The common arrays of the lists of devices: see judging.Append.
	eids []snapshot.EnvID
	uses []usage
}

// policyCap is a cap of the policy. Each of the list has a bit: 64 are enough.
type policyCap struct {
	*enforce.Cap
	rule    enforce.Rule // of its findings
	bit     uint64
	working *int64                                       // working GPUs, or -1 while it waits for hosts; made on demand
	gpus    map[*judging.HostView][]snapshot.DeviceIndex // see gpusOf
}

// New begins to count for users with caps.
func New(j *judging.Judgement) *Counting {
	c := &Counting{
		Judgement: j, byUser: make(map[snapshot.Username]*person), models: make(map[string]uint64),
		served: make(map[string]*wait), reservations: make(map[*judging.HostView][]*snapshot.Reservation),
		ownReserved: make(map[*personDevice]bool), counted: make(map[countKey]*counted),
		people: make([][]*person, len(j.Cluster)), at: make(map[int]*personDevice),
	}
	own := enforce.OwnCaps(func(user snapshot.Username) *enforce.Settings { return c.of(user).settings })
	for _, one := range own {
		c.caps = append(c.caps, &policyCap{Cap: one, rule: one.Rule})
	}
	for i, listed := range j.Policy.Caps(j.Now) {
		c.caps = append(c.caps, &policyCap{Cap: listed, rule: enforce.RuleCaps, bit: 1 << i})
	}
	c.own, c.list = c.caps[:len(own)], c.caps[len(own):]
	c.findReservations()
	return c
}

func (c *Counting) of(user snapshot.Username) *person {
	if u := c.byUser[user]; u != nil {
		return u
	}
	u := &person{user: user, number: len(c.byUser)}
	c.byUser[user] = u
	s := c.Policy.Settings(enforce.Query{User: user, At: c.Now})
	_, exempt := c.Policy.Exempt(enforce.Subject{User: user})
	if !exempt && (len(c.list)+len(c.reservations) > 0 || s.MaxDevices != nil || s.MaxMemory != nil || s.MaxEnvs != nil) {
		u.settings = s
	}
	return u
}

// Count counts what users have on a host, after the earlier rules. An environment without a user name counts for no
// user; its processes count for their own.
func (c *Counting) Count(h *judging.HostView) {
	first := len(c.onHosts)
	c.here, c.about = c.here[:0], 0
	clear(c.at)
	for _, listed := range c.list {
		if listed.OnHost(h.Name, h.Labels) {
			c.about |= listed.bit
		}
	}
	for _, env := range h.InOrder {
		if env.Env.Username == "" {
			c.Note(h, "environment %s has no user name, so no cap counts it", text.Shown(string(env.Env.EID)))
			continue
		}
		if u := c.of(env.Person); u.settings != nil {
			c.addEnv(u, env)
		}
	}
	c.addUses(h)
	for _, p := range h.More { // not in the snapshot
		if user := c.Policy.Account(h.UserOf(p)); user != "" {
			c.addUsesOf(c.of(user), h, nil, p)
		}
	}
	c.people[h.Position] = slices.Clip(c.onHosts[first:])
	c.findBusy()
}

func (c *Counting) addEnv(u *person, env *judging.EnvView) {
	c.begin(u, env.Host)
	u.envs = append(u.envs, env)
	for _, a := range env.Attachments {
		d := c.device(u, env.Host, a.Device)
		d.Envs = judging.Append(d.Envs, env.Env.EID, &c.eids)
		d.Capacity = sum(d.Capacity, a.GPUMemory, a.Device.TotalMemory)
		// To the minute: hosts are first looked at one after the other.
		at := snapshot.DateOf(a.Began.UTC().Truncate(time.Minute))
		if cmp.Or(at.Compare(d.Newest), a.Time.Compare(d.Written)) > 0 {
			d.Newest, d.Written = at, a.Time
		}
		d.Exempt = max(d.Exempt, env.ExemptUse(a.Device.Index))
	}
}

// addUses counts devices that users' processes use in a registered environment, or claim to: otherwise a user could
// evade the caps by registering environments under another name. Processes of unknown environment count, too, but don't
// end for it. Hosts without uids, such as 1.4.3, count only attachments.
func (c *Counting) addUses(h *judging.HostView) {
	for i := range h.Snapshot.Processes {
		p, env := &h.Snapshot.Processes[i], h.In[i]
		if h.Exempt[p.PID] {
			continue
		}
		user := c.Policy.Account(h.UserOf(p)) // a host may report another of its names
		if env != nil && env.Person != user && env.Env.Username != "" {
			c.addForeign(c.of(env.Person), env, p)
		}
		switch {
		case user == "":
		case env != nil || h.Claimed(p) != nil || p.EnvUnknown:
			c.addUsesOf(c.of(user), h, env, p)
		case h.CountsOutside(p) != "":
			c.addUsesOf(c.of(user), h, nil, p)
		}
	}
}

// addForeign adds another user's process in an environment, which ends with the attachment.
func (c *Counting) addForeign(owner *person, env *judging.EnvView, p *snapshot.Process) {
	for _, a := range env.Attachments {
		if d := c.at[deviceKey(owner.number, a.Device.Index)]; d != nil && p.Uses(d.Index) != nil {
			c.addProcess(owner, d, env, p)
		}
	}
}

// addUsesOf skips an unattached device whose processes end anyway.
func (c *Counting) addUsesOf(u *person, h *judging.HostView, in *judging.EnvView, p *snapshot.Process) {
	if u.settings == nil {
		return
	}
	for _, use := range p.Usage {
		device := h.Devices[use.Index]
		if device == nil || h.IgnoresUse(use) {
			continue
		}
		c.begin(u, h)
		if c.at[deviceKey(u.number, use.Index)] == nil && h.Terminates(p) {
			continue
		}
		d := c.device(u, h, device)
		switch {
		case !c.attached(u, in, use.Index) && h.CountsOutside(p) != "":
			start := snapshot.DateOf(h.Snapshot.When(p.Start, snapshot.Date{}).UTC().Truncate(time.Second))
			if start.Compare(d.Newest) > 0 {
				d.Newest, d.Written = start, snapshot.Date{}
			}
			fallthrough
		case !p.EnvUnknown: // device has noted it otherwise
			c.addProcess(u, d, in, p)
		}
	}
}

func (c *Counting) addProcess(u *person, d *personDevice, in *judging.EnvView, p *snapshot.Process) {
	d.Uses = judging.Append(d.Uses, usage{Process: p, Attached: c.attached(u, in, d.Index)}, &c.uses)
	if !p.StartedByUnknown() { // otherwise any user may have started it
		d.Used = sum(d.Used, p.Uses(d.Index).Memory, snapshot.Memory{})
	}
}

func (c *Counting) attached(u *person, env *judging.EnvView, index snapshot.DeviceIndex) bool {
	return env != nil && env.Env.Username != "" && env.Person == u.user && env.Attached(index)
}

func (c *Counting) begin(u *person, h *judging.HostView) {
	if u.last == h {
		return
	}
	if u.last == nil {
		c.inOrder = append(c.inOrder, u)
	}
	u.last = h
	c.onHosts = append(c.onHosts, u)
}

// A device is idle after the time of the rule idle, whether or not that rule acts.
func (c *Counting) device(u *person, h *judging.HostView, device *snapshot.Device) *personDevice {
	at := deviceKey(u.number, device.Index)
	if d := c.at[at]; d != nil {
		return d
	}
	d := &judging.Append(nil, personDevice{
		Device: device, Host: h, Owner: u.number, caps: c.about & c.aboutModel(device),
	}, &c.devicePool)[0]
	for _, p := range h.UnknownOn[device.Index] {
		if h.CountsOutside(p) != "" {
			continue // whatever its environment is
		}
		switch c.Policy.Account(h.UserOf(p)) {
		case "":
			d.Unknown = max(d.Unknown, judging.Reported)
		case u.user:
			d.Unknown = judging.Proven
		}
	}
	rule := h.SettingsOf(u.user).Idle
	d.Idle = rule != nil && h.MostIdle >= rule.After && h.Uses[judging.UseOf(u.user, device)].IdleFor(h.At) >= rule.After
	u.devices, c.here, c.at[at] = append(u.devices, d), append(c.here, d), d
	return d
}

func (c *Counting) aboutModel(d *snapshot.Device) (caps uint64) {
	model := enforce.ModelOf(d)
	caps, known := c.models[model]
	if !known {
		for _, listed := range c.list {
			if listed.IsAboutModel(model) {
				caps |= listed.bit
			}
		}
		c.models[model] = caps
	}
	return caps
}

func deviceKey(owner int, index snapshot.DeviceIndex) int { return owner<<32 | int(uint32(index)) }

// findBusy unmarks idle devices with a process that also uses a busy GPU.
func (c *Counting) findBusy() {
	var busy []*personDevice
	for _, d := range c.here {
		isBusy := func(u snapshot.DeviceUsage) bool {
			other := c.at[deviceKey(d.Owner, u.Index)]
			return other != nil && !other.Idle
		}
		if d.Idle && slices.ContainsFunc(d.Uses, func(use usage) bool {
			return slices.ContainsFunc(use.Process.Usage, isBusy)
		}) {
			busy = append(busy, d)
		}
	}
	for _, d := range busy {
		d.Idle = false
	}
}
