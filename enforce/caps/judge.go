package caps

import (
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
)

// Judge takes environments and GPUs from people who exceed a cap: the cheapest first, and never more than the excess,
// unless one process holds several GPUs. What one cap takes doesn't count for later ones. Caps with their own keys come
// before those of the list.
func (c *Counting) Judge() {
	for h, list := range c.reservations {
		maps.Copy(c.ownReserved, c.withinReservations(h, list, h.Clock()))
	}
	for _, listed := range c.list {
		if listed.Kind == enforce.CapHours {
			c.countHours(listed)
		}
	}
	dropGone(c.inOrder)
	for person := range slices.Chunk(c.inOrder, 1) {
		for _, own := range c.own {
			if on := c.on(own, nil, person); on != nil {
				on.judge()
			}
		}
	}
	c.findUncounted()
	c.keepTaken()
	for _, listed := range c.list {
		c.judgeListed(listed)
	}
	c.judgeReservations()
	if len(c.inOrder) > 0 && len(c.Missing) > 0 { // not their number: the note stays the same
		const text = "some hosts did not answer: GPUs there don't count toward per-user caps"
		c.Notes = append(c.Notes, enforce.Note{Text: text})
	}
	c.conclude()
}

// findUncounted counts the people and processes that non-env-processes: count would add to caps and idle.
func (c *Counting) findUncounted() {
	s := c.Policy.Settings(enforce.Query{At: c.Now})
	if len(c.list) == 0 && s.MaxDevices == nil && s.MaxMemory == nil && s.Idle == nil {
		return
	}
	people := make(map[snapshot.Username]bool)
	for _, h := range c.Hosts {
		if h.Settings.CountOutside || h.Settings.NonEnvProcesses {
			continue
		}
		for i := range h.Snapshot.Processes {
			p := &h.Snapshot.Processes[i]
			if h.In[i] != nil || h.Exempt[p.PID] || len(p.Usage) == 0 {
				continue
			}
			if user := h.ProvenUser(p); user != "" {
				people[user] = true
				c.Uncounted.Processes++
			}
		}
	}
	c.Uncounted.People = len(people)
}

func (c *Counting) judgeListed(listed *policyCap) {
	hosts := []*judging.HostView{nil}
	if listed.PerHost {
		hosts = c.Hosts
	}
	var whileWaiting []*capOn
	for _, h := range hosts {
		here, size := c.inOrder, 1
		if h != nil {
			if !listed.OnHost(h.Name, h.Labels) {
				continue
			}
			here = c.people[h.Position]
		}
		if here = listed.members(here); listed.Together {
			size = max(1, len(here))
		}
		for sharing := range slices.Chunk(here, size) {
			if isFarOff(listed, sharing) {
				continue
			}
			switch on := c.on(listed, h, sharing); {
			case !on.known || listed.Inactive || listed.Kind == enforce.CapHours && on.spent <= on.allowed:
			case listed.Waiting != nil:
				whileWaiting = append(whileWaiting, on)
			default:
				on.judge()
			}
		}
	}
	c.judgeWaiting(listed, whileWaiting)
}

// isFarOff is a cheap test for most people: the cap of GPUs can't be exceeded.
func isFarOff(c *policyCap, people []*person) bool {
	limit, about := c.Limit(people[0].user)
	if !about || c.Kind != enforce.CapGPUs || c.Together || limit.Percent || limit.AllBut {
		return !about
	}
	return int64(len(people[0].devices)) <= limit.Value
}

// Unknown members are neither counted nor taken from.
func (c *policyCap) members(people []*person) []*person {
	return slices.DeleteFunc(slices.Clone(people), func(u *person) bool { return c.Member(u.user) != enforce.Member })
}

// on applies a cap to people, on a host or on all; nil if it doesn't cover them.
func (c *Counting) on(listed *policyCap, h *judging.HostView, people []*person) *capOn {
	user := people[0].user
	if listed.Together {
		user = ""
	}
	limit, about := listed.Limit(user)
	if !about {
		return nil
	}
	on := &capOn{Counting: c, policyCap: listed, host: h, people: people, known: true}
	working := int64(0)
	if limit.Percent || limit.AllBut {
		working, on.known = c.working(listed, h)
	}
	on.limit, on.forOthers = limit.OfBase(working), limit.AllBut
	if listed.Together || listed.Waiting != nil {
		on.ownReserved = c.ownReserved
	}
	if listed.Kind == enforce.CapHours {
		on.spent, on.allowed, on.limit = c.spent(listed, people), on.limit, 0
		on.known = !c.Next.Hours[listed.ID].Unread
	}
	return on
}

// capOn is a cap for one person or for people together, on one host or on all.
type capOn struct {
	*Counting
	*policyCap
	host        *judging.HostView // nil for all
	looks       *looks            // at the hosts with something that counts; made on demand
	people      []*person
	limit       int64
	known       bool  // the limit and the count are known
	spent       int64 // seconds of GPUs, of allowed
	allowed     int64
	forOthers   bool                   // the limit keeps GPUs for others
	notBefore   time.Time              // no action before; zero for none
	ownReserved map[*personDevice]bool // held within own reservations: they don't count

	// For a cap with while: what counts and isn't taken, how many may be taken, and the wait.
	counted []*personDevice
	mayTake int
	wait    *wait
}

func (c *capOn) judge() {
	if c.Kind == enforce.CapEnvironments {
		c.judgeEnvs()
	} else {
		c.judgeDevices()
	}
}

func (c *capOn) judgeDevices() {
	if c.Kind != enforce.CapMemory && c.atMost() <= c.limit {
		return
	}
	devices := c.devices()
	if c.forOthers {
		devices = c.withoutOutsiders(devices, c.dueAt())
	}
	counted, used := c.count(devices, time.Time{})
	if used <= c.limit {
		return
	}
	by := c.dueAt()
	then, left := counted, used
	if !by.IsZero() {
		then, left = c.count(devices, by)
	}
	choice := &choice{by: by, excess: left - c.limit, memory: c.Kind == enforce.CapMemory, mayKeep: c.limit}
	c.takeAll(c.finding(counted, nil, used), choice.devices(then))
}

func (c *capOn) finding(counted []*personDevice, envs []*judging.EnvView, used int64) enforce.Finding {
	where := c.places(counted, envs)
	on := hostsOf(where)
	f := enforce.Finding{
		Rule: c.rule, CountedOn: on, Count: &enforce.CountExcess{Used: len(counted) + len(envs), Hosts: len(on)},
	}
	if c.Kind == enforce.CapMemory {
		f.Memory = &enforce.MemoryExcess{UsedBytes: used, CapacityBytes: c.limit}
	} else {
		f.Count.Limit = int(c.limit)
		for _, d := range counted {
			f.Count.Attached += min(len(d.Envs), 1)
		}
		f.Count.Unattached = len(counted) - f.Count.Attached
	}
	if c.ID != "" {
		f.Cap = c.excess(where, used)
	}
	return f
}

func (c *capOn) takeAll(f enforce.Finding, chosen []*personDevice) (acts bool) {
	lost := lostBy(chosen)
	for _, u := range c.people {
		devices := lost[u.number]
		acts = c.add(u, f, len(devices), func(part *enforce.Finding, due bool, from, to int) {
			c.loseDevices(part, due, devices[from:to])
		}) || acts
	}
	if acts {
		dropGone(c.people)
	}
	return acts
}

// atMost is an upper bound of the GPUs: it counts a shared one for each person.
func (c *capOn) atMost() (n int64) {
	for _, u := range c.people {
		n += int64(len(u.devices))
	}
	if n <= c.limit || c.isAboutAll() {
		return n
	}
	n = 0
	for _, u := range c.people {
		for _, d := range u.devices {
			if c.isAbout(d) {
				n++
			}
		}
	}
	return n
}

func dropGone(people []*person) {
	for _, u := range people {
		u.devices = slices.DeleteFunc(u.devices, new(choice).goes)
	}
}

func (c *capOn) devices() []*personDevice {
	lists := make([][]*personDevice, len(c.people))
	for i, u := range c.people {
		lists[i] = c.devicesOf(u)
	}
	if c.Together {
		return together(lists)
	}
	return lists[0]
}

func (c *capOn) devicesOf(u *person) []*personDevice {
	if c.isAboutAll() {
		return u.devices
	}
	return slices.DeleteFunc(slices.Clone(u.devices), func(d *personDevice) bool { return !c.isAbout(d) })
}

func (c *capOn) isAboutAll() bool { return c.bit == 0 && c.host == nil }

func (c *capOn) isAbout(d *personDevice) bool {
	return (c.host == nil || d.Host == c.host) && d.caps&c.bit == c.bit && !c.ownReserved[d]
}

func (c *capOn) count(devices []*personDevice, by time.Time) (counted []*personDevice, used int64) {
	if counted = countable(devices, by); c.Kind != enforce.CapMemory {
		return counted, int64(len(counted))
	}
	counted = slices.DeleteFunc(counted, func(d *personDevice) bool {
		if used += max(0, d.memory()); d.memory() == unknownBytes {
			why := "the memory of GPU %d is unknown, so memory caps don't count it"
			if d.Unified {
				why = "GPU %d shares the memory of its machine, so memory caps don't apply to it"
			}
			c.Note(d.Host, why, d.Index)
		}
		return d.memory() == unknownBytes
	})
	return counted, used
}

type place struct {
	h      *judging.HostView
	amount int64
	gpus   []snapshot.DeviceIndex
}

func (c *capOn) places(devices []*personDevice, envs []*judging.EnvView) (list []place) {
	add := func(h *judging.HostView, amount int64, gpus ...snapshot.DeviceIndex) {
		if len(list) == 0 || list[len(list)-1].h != h {
			list = append(list, place{h: h})
		}
		last := &list[len(list)-1]
		last.amount, last.gpus = last.amount+amount, append(last.gpus, gpus...)
	}
	for _, d := range devices {
		amount := int64(1)
		if c.Kind == enforce.CapMemory {
			amount = max(0, d.memory())
		}
		add(d.Host, amount, d.Index)
	}
	for _, e := range envs {
		add(e.Host, 1)
	}
	return list
}

// A single machine has no name.
func hostsOf(where []place) []snapshot.Hostname {
	names := make([]snapshot.Hostname, 0, len(where))
	for _, p := range where {
		if p.h.Name != "" {
			names = append(names, p.h.Name)
		}
	}
	slices.Sort(names)
	return names
}
