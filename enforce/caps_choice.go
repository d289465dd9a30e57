package enforce

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/snapshot"
)

// The cost of losing a device. One of which the use is only reported, without a uid of the user, goes before
// one that is proven to be in use: whoever forges state on one host can't have a job ended on another.
const (
	costIdle int8 = iota
	costEndsAnyway
	costReported
	costBusy
)

// choice is a choice of devices that a user is to lose, on which nothing else depends yet.
type choice struct {
	j             *judgement
	by            time.Time // when it will be made; zero for now
	excess, freed int64     // how much is to go, and how much goes by what is chosen
	weight        func(*heldDevice) int64
	ending        map[*snapshot.Process]int // by how many chosen devices processes end
	chosen        []*heldDevice

	// mayKeep is up to how much memory of busy devices no process ends, whatever the environments may use: that
	// is a claim of state files. used is what processes on them use.
	mayKeep, used int64
}

// counted lists the devices that count for the user's caps: without those that the user loses anyway, now or by a time.
// A device that exempt processes use counts only if a process of the user's own uid uses it, too: otherwise a job
// elsewhere could end for it.
func (j *judgement) counted(u *held, by time.Time) []*heldDevice {
	c := &choice{j: j, by: by}
	list := make([]*heldDevice, 0, len(u.devices))
	for _, d := range u.devices {
		if c.leaves(d) {
			continue
		}
		if d.cost = c.costOf(d); d.exempt != contents.Reported || d.cost == costBusy {
			list = append(list, d)
		}
	}
	return j.once(list)
}

// once leaves one of the devices on which two hosts report the same process: they may be one machine, although that
// isn't proved. The others count no more, and go with it. What one of the hosts understates is not believed.
func (j *judgement) once(list []*heldDevice) []*heldDevice {
	type shared struct {
		boot   string
		device snapshot.DeviceIndex
		pid    snapshot.PID
		start  snapshot.StartTime
	}
	first := make(map[shared]int)
	kept := list[:0]
	for _, d := range list {
		at := len(kept)
		d.copies = nil
		for _, use := range d.uses {
			if boot := d.h.snapshot.BootID; j.sharedBoots[boot] {
				key := shared{boot, d.Index, use.process.PID, use.process.Start}
				if _, known := first[key]; !known {
					first[key] = at
				}
				at = min(at, first[key])
			}
		}
		if at == len(kept) {
			kept = append(kept, d)
			continue
		}
		other := kept[at]
		if cmp.Or(cmp.Compare(other.exempt, d.exempt), cmp.Compare(d.memory(), other.memory())) > 0 {
			kept[at], d, other = d, other, d
			other.copies = d.copies
		}
		other.copies = append(other.copies, d)
	}
	slices.SortStableFunc(kept, func(a, b *heldDevice) int { return cmp.Compare(a.h.order, b.h.order) })
	return kept
}

// boots are those that more than one host reports.
func (j *judgement) boots() map[string]bool {
	seen, shared := make(map[string]bool, len(j.hosts)), make(map[string]bool)
	for _, h := range j.hosts {
		if boot := h.snapshot.BootID; boot != "" {
			shared[boot] = seen[boot]
			seen[boot] = true
		}
	}
	return shared
}

// devices chooses among the devices that count until it is enough: idle ones first, then those of processes
// that end anyway, then the others; within each the newest attachment first, then by host and index. The more
// a choice is proven to hurt, the later it is made.
func (c *choice) devices(counted []*heldDevice) []*heldDevice {
	c.ending = make(map[*snapshot.Process]int)
	for from, to := 0, 0; from < len(counted); from = to {
		for to < len(counted) && counted[to].h == counted[from].h {
			to++
		}
		for _, d := range counted[from:to] {
			d.mates, d.chosen, d.stays, d.gone = counted[from:to], false, false, false
			if d.cost == costBusy {
				c.used += max(0, d.used)
			}
		}
	}
	queue := slices.DeleteFunc(slices.Clone(counted), func(d *heldDevice) bool { return d.exempt != contents.Unused })
	slices.SortFunc(queue, (*heldDevice).compare)
	for n := 0; len(queue) > 0; queue, n = queue[n:], 0 {
		for n < len(queue) && queue[n].cost == queue[0].cost {
			n++
		}
		c.takeFrom(queue[0].cost, queue[:n])
	}
	c.giveBack()
	return slices.DeleteFunc(c.chosen, func(d *heldDevice) bool { return !d.chosen })
}

// compare says which of two devices goes first.
func (d *heldDevice) compare(other *heldDevice) int {
	return cmp.Or(cmp.Compare(d.cost, other.cost), other.newest.Compare(d.newest), other.written.Compare(d.written),
		cmp.Compare(d.h.order, other.h.order), cmp.Compare(d.Index, other.Index))
}

// enough reports whether no device of a cost need go any more.
func (c *choice) enough(cost int8) bool {
	return c.freed >= c.excess || cost == costBusy && c.used <= c.mayKeep
}

// takeFrom chooses among devices of the same cost: first those that take no more than the excess, and then, if
// that is not enough, the one that takes the least more. A device takes more if its processes use others.
func (c *choice) takeFrom(cost int8, devices []*heldDevice) {
	for len(devices) > 0 && !c.enough(cost) {
		var over []*heldDevice
		for _, d := range devices {
			switch {
			case d.gone || c.enough(cost):
			case c.freedWith(d) > c.excess:
				over = append(over, d)
			default:
				c.take(d)
			}
		}
		if devices = over; len(over) > 0 && !c.enough(cost) {
			least := slices.MinFunc(over, func(a, b *heldDevice) int { return cmp.Compare(c.freedWith(a), c.freedWith(b)) })
			c.take(least)
		}
	}
}

// take chooses a device. Once its processes end, what else they alone used on the host goes
// before the next device that is in use.
func (c *choice) take(d *heldDevice) {
	c.set(d, true)
	if c.chosen = append(c.chosen, d); len(d.uses) == 0 || len(d.mates) == 1 {
		return
	}
	for _, mate := range slices.SortedFunc(slices.Values(d.mates), (*heldDevice).compare) {
		if mate.gone || mate.exempt != contents.Unused || c.enough(d.cost) || c.costOf(mate) > costEndsAnyway {
			continue
		}
		if c.freedWith(mate) <= c.excess {
			c.set(mate, true)
			c.chosen = append(c.chosen, mate)
		}
	}
}

// giveBack gives back what turned out not to be needed, the busiest and the oldest first; of the same age what
// most depends on. Then it gives back attachments to devices of which the processes must end.
func (c *choice) giveBack() {
	if c.freed <= c.excess {
		return
	}
	without := make(map[*heldDevice]int64, len(c.chosen)) // how much would still go
	for _, d := range c.chosen {
		c.set(d, false)
		without[d] = c.freed
		c.set(d, true)
	}
	order := slices.SortedFunc(slices.Values(c.chosen), func(a, b *heldDevice) int {
		return cmp.Or(cmp.Compare(b.cost, a.cost), a.newest.Compare(b.newest), a.written.Compare(b.written),
			cmp.Compare(without[a], without[b]), b.compare(a))
	})
	for _, d := range order {
		if c.set(d, false); c.freed < c.excess {
			c.set(d, true)
		}
	}
	for _, d := range order {
		if d.stays = d.chosen && len(d.envs) > 0; d.stays {
			if c.update(d); c.freed < c.excess {
				d.stays = false
				c.update(d)
			}
		}
	}
}

// freedWith is how much would go if a device were chosen as well.
func (c *choice) freedWith(d *heldDevice) int64 {
	c.set(d, true)
	defer c.set(d, false)
	return c.freed
}

// set chooses a device or gives it back, and finds which other ones go because its processes end.
func (c *choice) set(d *heldDevice, chosen bool) {
	d.chosen = chosen
	c.update(d)
	for _, use := range d.uses {
		if c.ending[use.process]--; chosen {
			c.ending[use.process] += 2
		}
	}
	if len(d.uses) > 0 {
		for _, mate := range d.mates {
			c.update(mate)
		}
	}
}

func (c *choice) update(d *heldDevice) {
	was, sign := d.gone, int64(1)
	if d.gone = d.chosen && !d.stays || c.leaves(d); d.gone == was {
		return
	} else if was {
		sign = -1
	}
	c.freed += sign * c.weight(d)
	if d.cost == costBusy {
		c.used -= sign * max(0, d.used)
	}
}

// leaves reports whether the user loses a device anyway, so that it no longer counts. Processes that use it
// without an attachment must end for that, too.
func (c *choice) leaves(d *heldDevice) bool {
	if len(d.envs) == 0 && d.unknown == contents.Proven {
		return false
	}
	return !slices.ContainsFunc(d.envs, func(env *envView) bool { return !d.h.draft.detachesBy(d.Index, env.env.EID, c.by) }) &&
		!slices.ContainsFunc(d.uses, func(use heldUse) bool { return !use.attached && !c.ends(d.h, use.process) })
}

// ends reports whether a process ends by what is in the draft, or by what is chosen and can be ended.
func (c *choice) ends(h *hostView, p *snapshot.Process) bool {
	if c.ending[p] == 0 || h.draft.endsBy(p, c.by) {
		return h.draft.endsBy(p, c.by)
	}
	_, stuck := c.j.stuckBecause(h, p)
	return !stuck
}

// costOf is what losing a device costs the user, if the processes of the chosen devices end as well.
func (c *choice) costOf(d *heldDevice) (cost int8) {
	switch d.unknown {
	case contents.Proven:
		return costBusy
	case contents.Reported:
		cost = costReported
	}
	for _, use := range d.uses {
		switch p := use.process; {
		case c.ending[p] > 0 || d.h.draft.endsBy(p, c.by):
			cost = max(cost, costEndsAnyway)
		case p.UID == nil || *p.CountedUID() == 0:
			cost = max(cost, costReported)
		default:
			return costBusy
		}
	}
	return cost
}
