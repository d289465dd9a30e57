package enforce

import (
	"iter"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/caps"
	"github.com/seed-3119e985/genv/snapshot"
)

// caps takes environments and GPUs from people who are over a cap: never more than the excess, unless one process
// holds several GPUs, and those first that cost them least. What one cap takes doesn't count for the next. The caps
// with a key of their own, which each person may have differently, come before those of the list.
func judgeCaps(j *judgement) CapsResult {
	c := newCounting(j)
	c.markIdle()
	c.markReserved()
	for _, listed := range c.list {
		if listed.Kind == CapHours {
			c.countHours(listed)
		}
	}
	dropLeaving(c.inOrder)
	for _, u := range c.inOrder {
		for own := range c.ownCaps(u) {
			own.judge()
		}
	}
	c.findUncounted()
	c.keepTaken()
	for _, listed := range c.list {
		c.judgeListed(listed)
	}
	c.judgeReservations()
	// without their number, so that it is the same note while some are missing
	if len(c.inOrder) > 0 && len(j.missing) > 0 {
		j.notes = append(j.notes, Note{Text: "some hosts did not answer: GPUs there don't count toward per-user " +
			"caps"})
	}
	return c.result()
}

// ownCaps are the caps of a person with a key of their own.
func (c *counting) ownCaps(u *held) iter.Seq[*capOn] {
	return func(yield func(*capOn) bool) {
		u.settings.Caps(func(rule Rule, kind CapKind, limit int64) bool {
			return yield(&capOn{counting: c, Cap: &Cap{Kind: kind}, rule: rule, people: []*held{u}, limit: limit})
		})
	}
}

// findUncounted finds out who would count for caps and idle if processes outside of environments did.
func (c *counting) findUncounted() {
	s := c.policy.Settings(Query{At: c.now})
	if len(c.list) == 0 && s.MaxDevices == nil && s.MaxMemory == nil && s.Idle == nil {
		return
	}
	people := make(map[snapshot.Username]bool)
	for _, h := range c.hosts {
		if h.settings.CountOutside || h.settings.NonEnvProcesses {
			continue
		}
		for i := range h.snapshot.Processes {
			p := &h.snapshot.Processes[i]
			if user := h.personRunning(p); user != "" && h.in[i] == nil && !h.exempt[p.PID] && len(p.Usage) > 0 {
				people[user] = true
				c.uncounted.Processes++
			}
		}
	}
	c.uncounted.People = len(people)
}

// judgeListed applies a cap of the list: to each person or to all together, on each host or on all.
func (c *counting) judgeListed(listed *Cap) {
	people := c.members(listed)
	if len(people) == 0 {
		return
	}
	hosts := []*hostView{nil}
	if listed.PerHost {
		hosts = c.hosts
	}
	var whileWaiting []*capOn
	judge := func(h *hostView, people []*held) {
		if isFarOff(listed, people) {
			return
		}
		switch on := c.on(listed, h, people); {
		case !on.about || !on.known || listed.Resting || listed.Kind == CapHours && on.spent <= on.allowed:
		case listed.Waiting != nil:
			whileWaiting = append(whileWaiting, &on)
		default:
			on.judge()
		}
	}
	for _, h := range hosts {
		if h != nil && !listed.OnHost(h.name, h.labels) {
			continue
		}
		here := people
		if h != nil {
			here = slices.DeleteFunc(slices.Clone(c.people[h]), func(u *held) bool { return listed.Member(u.user) != Member })
		}
		switch {
		case listed.Together && len(here) > 0:
			judge(h, here)
		case !listed.Together:
			for i := range here {
				judge(h, here[i:i+1:i+1])
			}
		}
	}
	c.judgeWaiting(listed, whileWaiting)
}

// isFarOff reports whether people have too little for a cap of GPUs, whichever they have: so it is with most.
func isFarOff(c *Cap, people []*held) bool {
	limit, about := c.Limit(people[0].user)
	if !about || c.Kind != CapGPUs || c.Together || limit.Percent || limit.AllBut {
		return !about
	}
	return int64(len(people[0].devices)) <= limit.Value
}

// members are those with something whom a cap is about. Who may be one is neither counted nor taken from.
func (c *counting) members(listed *Cap) (people []*held) {
	for _, u := range c.inOrder {
		if listed.Member(u.user) == Member {
			people = append(people, u)
		}
	}
	return people
}

// on is a cap of the list for people, on one host or on all.
func (c *counting) on(listed *Cap, h *hostView, people []*held) capOn {
	user := people[0].user
	if listed.Together {
		user = ""
	}
	on := capOn{counting: c, Cap: listed, rule: RuleCaps, host: h, people: people, known: true}
	limit, about := listed.Limit(user)
	working := int64(0)
	if limit.Percent || limit.AllBut {
		working, on.known = c.working(listed, h)
	}
	on.about, on.limit, on.leavesSome = about, limit.OfBase(working), limit.AllBut
	if listed.Together || listed.Waiting != nil {
		on.spared = c.reserved
	}
	if listed.Kind == CapHours {
		on.spent, on.allowed, on.limit = c.spent(listed, people), on.limit, 0
	}
	return on
}

// capOn is a cap as it holds for one person or for people together, on one host or on all.
type capOn struct {
	*counting
	*Cap
	rule       Rule
	host       *hostView // nil for all
	selection  *selection
	looks      *looks // at the hosts on which something counts; nil until it is asked for
	people     []*held
	limit      int64
	about      bool  // it says something about them
	known      bool  // the limit is
	spent      int64 // seconds of GPUs that were used, of allowed
	allowed    int64
	leavesSome bool      // its limit leaves GPUs to others
	notBefore  time.Time // it acts not before that; zero if that has come
	// spared are devices that people hold within own reservations: they don't count.
	spared map[*caps.HeldDevice]bool

	// Of one that holds as far as others wait: what counts and isn't taken, how many more may be, and what is taken for
	// a wait.
	counted []*caps.HeldDevice
	mayTake int
	wait    *need
	chosen  []*caps.HeldDevice
}

func (c *capOn) judge() {
	if c.Kind == CapEnvironments {
		c.judgeEnvs()
	} else {
		c.judgeDevices()
	}
}

// judgeDevices takes devices beyond the cap.
func (c *capOn) judgeDevices() {
	if c.Kind != CapMemory && c.most() <= c.limit {
		return
	}
	devices := c.devices()
	if c.leavesSome {
		devices = c.withoutOutsiders(devices)
	}
	counted, used := c.count(devices, time.Time{})
	if used <= c.limit {
		return
	}
	choice := caps.Choice{By: c.dueAt(), Weight: func(*caps.HeldDevice) int64 { return 1 }, MayKeep: -1}
	if c.Kind == CapMemory {
		choice.Weight, choice.MayKeep = (*caps.HeldDevice).Memory, c.limit
	}
	then, left := counted, used
	if !choice.By.IsZero() {
		then, left = c.count(devices, choice.By)
	}
	choice.Excess = left - c.limit
	c.takeAll(c.finding(counted, used), choice.Devices(then))
}

// finding is that the people have so much that counts.
func (c *capOn) finding(counted []*caps.HeldDevice, used int64) Finding {
	f := Finding{Rule: c.rule, CountedOn: hostsOf(counted, hostOf), Count: &CountExcess{Used: len(counted)}}
	if c.Kind == CapMemory {
		f.Memory = &MemoryExcess{UsedBytes: used, CapacityBytes: c.limit}
	} else {
		f.Count.Limit = int(c.limit)
		for _, d := range counted {
			f.Count.Attached += min(len(d.Envs), 1)
		}
		f.Count.Unattached = len(counted) - f.Count.Attached
	}
	if c.ID != "" {
		f.Cap = c.excess(counted, used)
	}
	return f
}

// takeAll adds the findings about what was chosen, and reports whether something is done about it.
func (c *capOn) takeAll(f Finding, chosen []*caps.HeldDevice) (acts bool) {
	lost := lostBy(chosen)
	for _, u := range c.people {
		acts = c.add(u, f, nil, lost[u.number]) || acts
	}
	if acts {
		dropLeaving(c.people)
	}
	return acts
}

// most is how many GPUs the people have at the most, a shared one for each.
func (c *capOn) most() (n int64) {
	for _, u := range c.people {
		n += int64(len(u.devices))
	}
	if n <= c.limit {
		return n
	}
	if c.OnHost == nil {
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

// dropLeaving forgets the devices that people lose anyway: they don't count any more.
func dropLeaving(people []*held) {
	for _, u := range people {
		u.devices = slices.DeleteFunc(u.devices, (*caps.HeldDevice).Leaves)
	}
}

// devices are those that the people have of those that the cap is about.
func (c *capOn) devices() []*caps.HeldDevice {
	lists := make([][]*caps.HeldDevice, len(c.people))
	for i, u := range c.people {
		lists[i] = c.devicesOf(u)
	}
	if c.Together {
		return caps.Together(lists)
	}
	return lists[0]
}

func (c *capOn) devicesOf(u *held) []*caps.HeldDevice {
	if c.OnHost == nil { // it is about all
		return u.devices
	}
	return slices.DeleteFunc(slices.Clone(u.devices), func(d *caps.HeldDevice) bool { return !c.isAbout(d) })
}

func (c *capOn) isAbout(d *caps.HeldDevice) bool {
	if c.selection == nil {
		c.selection = c.selectionOf(c.Cap)
	}
	h := hostOf(d)
	return (c.host == nil || h == c.host) && c.selection.hosts[h.position] &&
		c.selection.models[d.Model] && !c.spared[d]
}

// selection is which hosts, by their position, and models a cap is about.
type selection struct{ hosts, models []bool }

func (c *counting) selectionOf(listed *Cap) *selection {
	s := c.selections[listed]
	if s == nil {
		s = &selection{make([]bool, len(c.cluster)), make([]bool, len(c.models))}
		for _, h := range c.hosts {
			s.hosts[h.position] = listed.OnHost(h.name, h.labels)
		}
		for name, i := range c.models {
			s.models[i] = listed.isAboutModel(name)
		}
		c.selections[listed] = s
	}
	return s
}

// count lists the devices that count, now or at a time, and how much that is of what the cap counts.
func (c *capOn) count(devices []*caps.HeldDevice, by time.Time) (counted []*caps.HeldDevice, used int64) {
	if counted = caps.Counted(devices, by); c.Kind != CapMemory {
		return counted, int64(len(counted))
	}
	counted = slices.DeleteFunc(counted, func(d *caps.HeldDevice) bool {
		if used += max(0, d.Memory()); d.Memory() == caps.UnknownBytes {
			why := "the memory of GPU %d is unknown, so memory caps don't count it"
			if d.Unified {
				why = "GPU %d shares the memory of its machine, so memory caps don't apply to it"
			}
			c.note(hostOf(d), why, d.Index)
		}
		return d.Memory() == caps.UnknownBytes
	})
	return counted, used
}

func hostOf(d *caps.HeldDevice) *hostView { return d.Host.(*hostView) }

// hostsOf are the hosts on which something is; this machine, which has no name, is none.
func hostsOf[T any](list []T, of func(T) *hostView) []snapshot.Hostname {
	names := make([]snapshot.Hostname, len(list))
	for i, item := range list {
		names[i] = of(item).name
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name snapshot.Hostname) bool { return name == "" })
}
