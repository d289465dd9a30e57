package caps

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

type wait struct {
	*snapshot.Wait
	h    *judging.HostView
	user *person
	key  string                 // see WaitKey
	free []snapshot.DeviceIndex // GPUs that it gets, or would get
	// possible is how many GPUs it could have; GPUs if it gets them.
	possible int
}

func (n *wait) gets() bool { return n.possible == n.GPUs }

func (n *wait) lacks() int { return n.GPUs - len(n.free) }

// judgeWaiting applies a cap with while. It takes all that a wait lacks on one host, or nothing. The time runs for the
// wait, whoever would lose.
func (c *Counting) judgeWaiting(listed *policyCap, each []*capOn) {
	if len(each) == 0 {
		return
	}
	by := c.firstDue(each[0])
	over := overBy(each, by)
	if len(over) == 0 {
		return
	}
	for _, n := range c.needs(listed, by) {
		if c.served[n.key] != nil {
			continue
		}
		if c.take(over, n); n.gets() {
			c.served[n.key] = n
		}
		c.waits = append(c.waits, n)
	}
	c.waits = slices.DeleteFunc(c.waits, func(n *wait) bool { return !n.gets() && c.served[n.key] != nil })
}

// keepTaken keeps what was taken for waits: it may not be free yet.
func (c *Counting) keepTaken() {
	for _, h := range c.Hosts {
		for i := range h.Snapshot.Waits {
			w := &h.Snapshot.Waits[i]
			key := c.WaitKey(w)
			taken, known := c.TakenFor(w)
			if !known {
				continue
			}
			n := &wait{Wait: w, h: h, key: key, possible: w.GPUs}
			if taken.Host == h.Name {
				n.user, n.free = c.of(c.Policy.Account(w.Username)), taken.GPUs
				c.waits = append(c.waits, n)
			}
			if n.free != nil || c.served[key] == nil {
				c.served[key] = n
			}
		}
	}
}

func (c *Counting) firstDue(on *capOn) time.Time {
	warn := on.warnOf(on.people[0])
	first := c.Now.Add(warn.For)
	for _, h := range c.Hosts {
		for i := range h.Snapshot.Waits {
			if at := c.DueAt(nil, warn, on.key()+"/"+c.WaitKey(&h.Snapshot.Waits[i])); at.Before(first) {
				first = at
			}
		}
	}
	return first
}

func overBy(each []*capOn, by time.Time) (over []*capOn) {
	for _, on := range each {
		if on.atMost() <= on.limit {
			continue
		}
		on.counted, _ = on.count(on.withoutOutsiders(on.devices(), by), by)
		if on.mayTake = len(on.counted) - int(on.limit); on.mayTake > 0 {
			over = append(over, on)
		}
	}
	return over
}

// needs are the waits that a cap takes for, in the order of the queues.
func (c *Counting) needs(listed *policyCap, by time.Time) (needs []*wait) {
	first := make(map[string]int)
	for _, h := range c.Hosts {
		if len(h.Snapshot.Waits) == 0 {
			continue
		}
		free, may := c.free(h, by), make(map[snapshot.Username]int)
		for i := range h.Snapshot.Waits {
			n := &wait{Wait: &h.Snapshot.Waits[i], h: h, key: c.WaitKey(&h.Snapshot.Waits[i])}
			user := c.Policy.Account(n.Username)
			left := slices.DeleteFunc(slices.Clone(free), func(index snapshot.DeviceIndex) bool {
				gets := len(n.free) < n.GPUs && n.suits(index)
				if gets {
					n.free = append(n.free, index)
				}
				return gets
			})
			if c.mayBegin(n, user, may) { // otherwise others pass
				free = left
			}
			switch {
			case n.lacks() <= 0:
				if n.user = c.of(user); c.served[n.key] == nil {
					c.served[n.key] = n
				}
			case n.UID == 0 || user == "" || n.Passed || listed.Waiting(user) != enforce.Member ||
				!listed.OnHost(h.Name, h.Labels):
			default:
				n.user = c.of(user)
				if _, known := first[n.key]; !known {
					first[n.key] = len(needs)
				}
				needs = append(needs, n)
			}
		}
	}
	slices.SortStableFunc(needs, func(a, b *wait) int { // where it lacks least, first
		return cmp.Or(cmp.Compare(first[a.key], first[b.key]), cmp.Compare(a.lacks(), b.lacks()))
	})
	return needs
}

// mayBegin reports whether a wait's command might begin, whoever else waits. may caches answers by person: a host may
// have many waits.
func (c *Counting) mayBegin(n *wait, user snapshot.Username, may map[snapshot.Username]int) bool {
	most := len(n.h.Snapshot.Devices)
	if n.Passed || n.GPUs > most {
		return false
	}
	if user == "" || n.UID == 0 {
		return true
	}
	if _, known := may[user]; !known {
		all := snapshot.Wait{UID: n.UID, GPUs: most}
		may[user] = c.mayHave(&wait{Wait: &all, h: n.h, key: n.key, user: c.of(user)}, false)
	}
	return n.GPUs <= may[user]
}

func (n *wait) suits(index snapshot.DeviceIndex) bool {
	if n.Suits != nil && !slices.Contains(n.Suits, index) {
		return false
	}
	id, kept := n.h.KeptGPUs()[index]
	return !kept || id == n.ID
}

func (c *Counting) free(h *judging.HostView, by time.Time) (free []snapshot.DeviceIndex) {
	for i := range h.Snapshot.Devices {
		d := &h.Snapshot.Devices[i]
		if d.Works() && !d.Unidentified && !d.ProcessesUnknown && !d.MIGMode && !c.usedByOthers(nil, h, d, by) {
			free = append(free, d.Index)
		}
	}
	return free
}

// take takes all that a wait lacks or nothing, and finds how many GPUs it could have.
func (c *Counting) take(over []*capOn, n *wait) {
	of := make(map[*personDevice]*capOn)
	var list []*personDevice
	has, may := make(map[int]int), make(map[int]int)
	most := 0
	for _, on := range over {
		if on.mayTake == 0 || on.host != nil && on.host != n.h {
			continue
		}
		countOwners(has, 1, on.counted...)
		own := on.countOf(n.user)
		for _, d := range on.counted {
			if d.Host == n.h && !d.MIGMode && n.suits(d.Index) && on.canLose(d, n.user, own) {
				list, of[d] = append(list, d), on
			}
		}
		for _, u := range on.people {
			may[u.number] = on.mayTake
		}
		most += on.mayTake
	}
	var chosen []*personDevice
	n.possible = min(c.mayHave(n, true), len(n.free)+min(most, len(list)), n.GPUs)
	for ; n.possible > len(n.free); n.possible-- {
		if chosen = exactly(list, n.possible-len(n.free), has, may); chosen != nil {
			break
		}
	}
	if n.gets() {
		c.loseFor(n, chosen, of)
	}
}

// loseFor adds the findings about devices for a wait. All of them have to be due first.
func (c *Counting) loseFor(n *wait, chosen []*personDevice, of map[*personDevice]*capOn) {
	lost := make(map[*capOn][]*personDevice)
	var losing []*capOn
	for _, d := range chosen {
		on := of[d]
		if lost[on] == nil {
			losing = append(losing, on)
		}
		n.free, lost[on] = append(n.free, d.Index), append(lost[on], d)
	}
	var last time.Time
	for _, on := range losing {
		on.wait, on.looks = n, nil
		byOwner := lostBy(lost[on])
		for _, u := range on.people {
			if byOwner[u.number] == nil {
				continue
			}
			warn := on.warnOf(u)
			last = judging.Later(last, judging.Later(c.DueAt(on.host, warn, on.key()),
				c.DueAt(on.host, warn.Quarter(), on.key()+"/"+string(u.user))))
		}
	}
	for _, on := range losing {
		on.notBefore = last
		f := on.finding(on.counted, nil, int64(len(on.counted)))
		f.Cap.WaitsFor = fmt.Sprintf("%s waits for %s", text.Shown(string(n.user.user)), text.Plural(n.GPUs, "GPU"))
		if on.takeAll(f, lost[on]) {
			c.Next.TakenFor[n.key], n.h.Kept = enforce.Taken{At: c.Now, Host: n.h.Name, GPUs: n.free}, nil
		}
		on.mayTake -= len(lost[on])
		on.counted = slices.DeleteFunc(slices.Clone(on.counted), func(d *personDevice) bool {
			return slices.Contains(lost[on], d)
		})
	}
}

// has is how many of the cap's GPUs the waiter has.
func (c *capOn) canLose(d *personDevice, waiter *person, has int) bool {
	for _, part := range d.perOwner() {
		i := slices.IndexFunc(c.people, func(u *person) bool { return u.number == part.Owner })
		if c.people[i] == waiter || c.WaitingAnybody && c.countOf(c.people[i]) <= has {
			return false
		}
	}
	return true
}

func (c *capOn) countOf(u *person) int { return len(countable(c.devicesOf(u), time.Time{})) }

// mayHave is how many GPUs a waiting person may have on the host by all caps or, without whileWaiting, by those without
// while: a host's queue passes over people beyond these.
func (c *Counting) mayHave(n *wait, whileWaiting bool) int {
	may := n.GPUs
	if n.user.settings == nil { // exempt
		return may
	}
	for _, listed := range c.caps {
		if listed.Inactive || listed.Waiting != nil && !whileWaiting ||
			listed.Member(n.user.user) == enforce.NotMember || !listed.OnHost(n.h.Name, n.h.Labels) ||
			listed.Kind != enforce.CapGPUs && listed.Kind != enforce.CapHours || !n.wants(listed) {
			continue
		}
		people, h := []*person{n.user}, n.h
		if listed.Together {
			people = slices.DeleteFunc(listed.members(c.inOrder), func(u *person) bool { return u == n.user })
			people = append(people, n.user)
		}
		if !listed.PerHost {
			h = nil
		}
		switch on := c.on(listed, h, people); {
		case on == nil, !on.known && listed.Kind == enforce.CapHours && !whileWaiting:
		case !on.known, listed.Kind == enforce.CapHours && on.spent > on.allowed:
			may = 0
		case listed.Kind == enforce.CapGPUs:
			left := int(on.limit) - len(countable(on.devices(), time.Time{}))
			if whileWaiting {
				left -= c.promised(n, on)
			}
			may = min(may, left)
		}
	}
	return max(min(may, c.mayHaveUnreserved(n)), 0)
}

func (c *Counting) promised(n *wait, by *capOn) (count int) {
	for key, other := range c.served {
		together := by.Together && other.user != nil && by.Member(other.user.user) == enforce.Member
		if key == n.key || other.user != n.user && !together || by.host != nil && by.host != other.h ||
			!by.OnHost(other.h.Name, other.h.Labels) {
			continue
		}
		for _, index := range other.free {
			if d := other.h.Devices[index]; d != nil && by.IsAboutModel(enforce.ModelOf(d)) {
				count++
			}
		}
	}
	return count
}

func (n *wait) wants(listed *policyCap) bool {
	return slices.ContainsFunc(n.h.Snapshot.Devices, func(d snapshot.Device) bool {
		return n.suits(d.Index) && listed.IsAboutModel(enforce.ModelOf(&d))
	})
}
