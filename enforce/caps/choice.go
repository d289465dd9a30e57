package caps

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
)

// The costs of losing a device, lowest first. Reported use (without a uid of the user) costs less than proven use:
// forged state on one host must not end a job on another.
const (
	costGone int8 = iota // its processes were told to end, or can't be ended: no other device is lost instead
	costIdle
	costEndsAnyway
	costReported
	costBusy
)

func (d *personDevice) why() string {
	return [...]string{
		"what uses it can't be ended, and counts as gone", "it is idle", "what uses it ends anyway",
		"its use is only reported", "in use, and nothing else was enough",
	}[d.cost]
}

// choice selects devices that a person, or people together, have to lose. It goes through the costs, the lowest first,
// and through the devices of one cost in turn (turn.go). It takes devices as long as no more than the excess goes; if
// that isn't enough, it takes the device that frees the least more. All processes on a chosen device end. Finally it
// gives back superfluous devices (giveBack).
type choice struct {
	by     time.Time // the time of the action; zero for now
	excess int64     // devices or, of memory, bytes
	memory bool
	// mayKeep is how much memory processes on busy devices may use together before one ends. Capacities of environments
	// don't count: state files only claim them.
	mayKeep int64

	freed, used int64                     // what the choice frees, and what processes on other busy devices use
	ending      map[*snapshot.Process]int // the number of chosen devices of each process: above 0 it ends
	chosen      []*personDevice
	most        map[int]int // the number of devices that each person keeps
}

// countable are the devices that count for caps: not those that are lost anyway by a time. It sets their costs. A
// device with an exempt process counts only if a process of the user's own uid uses it, too: otherwise another job of
// the user could end for it.
func countable(devices []*personDevice, by time.Time) []*personDevice {
	c := &choice{by: by}
	list := make([]*personDevice, 0, len(devices))
	for _, d := range devices {
		if c.goes(d) {
			continue
		}
		if d.cost = c.costOf(d); d.Exempt != judging.Reported || d.cost == costBusy {
			list = append(list, d)
		}
	}
	return list
}

// costliest are the n devices of a person that cost most to lose, the oldest first.
func costliest(devices []*personDevice, n int) []*personDevice {
	list := slices.SortedFunc(slices.Values(countable(devices, time.Time{})), func(a, b *personDevice) int {
		return cmp.Or(cmp.Compare(b.cost, a.cost), newerFirst(b, a))
	})
	return list[:min(n, len(list))]
}

func (c *choice) devices(counted []*personDevice) []*personDevice {
	c.ending, c.most = make(map[*snapshot.Process]int), make(map[int]int)
	for from, to := 0, 0; from < len(counted); from = to {
		for to < len(counted) && counted[to].Host == counted[from].Host {
			to++
		}
		for _, d := range counted[from:to] {
			d.mates, d.chosen, d.Stays, d.gone = counted[from:to], false, false, false
			countOwners(c.most, 1, d)
			if d.cost == costBusy {
				c.used += max(0, d.Used)
			}
		}
	}
	for cost := costGone; cost <= costBusy && !c.enough(cost); cost++ {
		c.takeFrom(cost, slices.DeleteFunc(slices.Clone(counted), func(d *personDevice) bool {
			return d.cost != cost || d.Exempt != judging.Unused
		}))
	}
	c.giveBack()
	return slices.DeleteFunc(c.chosen, func(d *personDevice) bool { return !d.chosen })
}

func (c *choice) enough(cost int8) bool {
	return c.freed >= c.excess || c.memory && cost == costBusy && c.used <= c.mayKeep
}

func (c *choice) takeFrom(cost int8, devices []*personDevice) {
	for len(devices) > 0 && !c.enough(cost) {
		var over []*personDevice
		for d := range c.inTurn(devices) {
			switch {
			case c.enough(cost):
				return
			case d.gone:
			case c.freedWith(d) > c.excess:
				over = append(over, d)
			default:
				c.take(d)
			}
		}
		if devices = over; len(over) > 0 && !c.enough(cost) {
			least := slices.MinFunc(over,
				func(a, b *personDevice) int { return cmp.Compare(c.freedWith(a), c.freedWith(b)) })
			c.take(least)
		}
	}
}

// take chooses a device, and then other devices of the host that only its processes used.
func (c *choice) take(d *personDevice) {
	c.set(d, true)
	c.chosen = append(c.chosen, d)
	ends := func(mate *personDevice) bool {
		return !mate.gone && mate.Exempt == judging.Unused && !c.enough(d.cost) && c.costOf(mate) <= costEndsAnyway
	}
	if len(d.Uses) == 0 || !slices.ContainsFunc(d.mates, ends) {
		return
	}
	for _, mate := range slices.SortedFunc(slices.Values(d.mates), c.compare) {
		if ends(mate) && c.freedWith(mate) <= c.excess {
			c.set(mate, true)
			c.chosen = append(c.chosen, mate)
		}
	}
}

// giveBack undoes superfluous choices: the busiest devices first, then the oldest, then those that free most. It gives
// back a device in use together with all chosen devices of its processes. Finally it keeps attachments where ending the
// processes is enough. For example, of 2 devices to free, GPU 0 of job A is chosen, and GPU 1 of the older job B, which
// uses GPUs 1 and 2. Job B ends, so takeWhatEnds chooses GPU 2, too. GPU 0 alone isn't enough, so GPUs 1 and 2 stay
// chosen; GPU 0 is given back, and job A continues.
func (c *choice) giveBack() {
	busy := slices.ContainsFunc(c.chosen, func(d *personDevice) bool { return len(d.Uses) > 0 })
	if c.freed < c.excess || c.freed == c.excess && !busy {
		return
	}
	kept, others := c.takeWhatEnds()
	order := slices.DeleteFunc(c.oldestFirst(), func(d *personDevice) bool { return slices.Contains(others, d) })
	for _, d := range order {
		if d.chosen && len(d.Uses) > 0 {
			c.giveBackAll(d.withProcesses())
		}
	}
	for _, d := range order { // its processes one by one, if the rest is enough
		var tried []*personDevice
		for _, use := range slices.SortedFunc(slices.Values(d.Uses), usage.compare) {
			if used := d.usedBy(use); d.chosen && !slices.Equal(used, tried) {
				tried = used
				c.giveBackAll(used)
			}
		}
	}
	for _, d := range slices.Concat(kept, order, others) {
		if d.chosen {
			c.giveBackAll([]*personDevice{d})
		}
	}
	for _, d := range order {
		if d.Stays = d.chosen && len(d.Envs) > 0; d.Stays {
			if c.update(d); c.freed < c.excess {
				d.Stays = false
				c.update(d)
			}
		}
	}
}

// takeWhatEnds chooses the devices that become unused when the processes on the chosen devices end. others were freed
// without being chosen, since no attachment keeps them. For example, P and Q use GPU 1, which was chosen, and only P
// uses GPU 0. If GPU 0 is enough, giveBack can now give GPU 1 back: P ends, and Q continues.
func (c *choice) takeWhatEnds() (taken, others []*personDevice) {
	for _, d := range slices.Clone(c.chosen) {
		if len(d.Uses) == 0 {
			continue
		}
		for _, mate := range d.mates {
			if mate.chosen || mate.Exempt != judging.Unused || c.costOf(mate) != costEndsAnyway {
				continue
			}
			if mate.gone {
				others = append(others, mate)
			} else {
				taken = append(taken, mate)
			}
			c.set(mate, true)
			c.chosen = append(c.chosen, mate)
		}
	}
	return taken, others
}

func (c *choice) oldestFirst() []*personDevice {
	without := make(map[*personDevice]int64, len(c.chosen)) // what the others free
	for _, d := range c.chosen {
		c.set(d, false)
		without[d] = c.freed
		c.set(d, true)
	}
	return slices.SortedFunc(slices.Values(c.chosen), func(a, b *personDevice) int {
		return cmp.Or(cmp.Compare(b.cost, a.cost), a.Newest.Compare(b.Newest), a.Written.Compare(b.Written),
			cmp.Compare(without[a], without[b]), newerFirst(b, a))
	})
}

func (d *personDevice) withProcesses() []*personDevice {
	all := []*personDevice{d}
	for _, use := range d.Uses {
		for _, mate := range d.usedBy(use) {
			if !slices.Contains(all, mate) {
				all = append(all, mate)
			}
		}
	}
	return all
}

func (d *personDevice) usedBy(use usage) []*personDevice {
	return slices.DeleteFunc(slices.Clone(d.mates), func(mate *personDevice) bool {
		return !mate.chosen || use.Process.Uses(mate.Index) == nil
	})
}

func (u usage) compare(other usage) int {
	return cmp.Or(cmp.Compare(u.Process.Start, other.Process.Start), cmp.Compare(u.Process.PID, other.Process.PID))
}

func (c *choice) giveBackAll(devices []*personDevice) {
	for _, d := range devices {
		c.set(d, false)
	}
	if c.freed < c.excess {
		for _, d := range devices {
			c.set(d, true)
		}
	}
}

func (c *choice) freedWith(d *personDevice) int64 {
	c.set(d, true)
	defer c.set(d, false)
	return c.freed
}

// set also updates the host's other devices.
func (c *choice) set(d *personDevice, chosen bool) {
	d.chosen = chosen
	c.update(d)
	for _, use := range d.Uses {
		if c.ending[use.Process]--; chosen {
			c.ending[use.Process] += 2
		}
	}
	if len(d.Uses) > 0 {
		for _, mate := range d.mates {
			c.update(mate)
		}
	}
}

func (c *choice) update(d *personDevice) {
	was, sign := d.gone, int64(1)
	if d.gone = d.chosen && !d.Stays || c.goes(d); d.gone == was {
		return
	} else if was {
		sign = -1
	}
	if c.memory {
		c.freed += sign * d.memory()
	} else {
		c.freed += sign
	}
	countOwners(c.most, int(-sign), d)
	if d.cost == costBusy {
		c.used -= sign * max(0, d.Used)
	}
}

// A device goes if all attachments end, and all processes without one.
func (c *choice) goes(d *personDevice) bool {
	switch {
	case len(d.Envs) == 0 && d.Unknown == judging.Proven:
		return false
	case len(c.ending) == 0 && d.Host.TakesNothing():
		return len(d.Envs)+len(d.Uses) == 0
	}
	return !slices.ContainsFunc(d.Envs, func(eid snapshot.EnvID) bool {
		return !d.Host.DetachesBy(d.Index, eid, c.by)
	}) &&
		!slices.ContainsFunc(d.Uses, func(use usage) bool { return !use.Attached && !c.ends(d.Host, use.Process) })
}

func (c *choice) ends(h *judging.HostView, p *snapshot.Process) bool {
	return h.EndsBy(p, c.by) || c.ending[p] > 0 && !h.Stuck(p)
}

func (c *choice) costOf(d *personDevice) (cost int8) {
	if d.Unknown == judging.Unused { // else something stays that uses it
		ends := func(use usage) bool { return c.ends(d.Host, use.Process) || d.Host.Stuck(use.Process) }
		switch stuck := slices.ContainsFunc(d.Uses, func(use usage) bool { return d.Host.Stuck(use.Process) }); {
		case stuck && !slices.ContainsFunc(d.Uses, func(use usage) bool { return !ends(use) }):
			return costGone
		case d.Idle:
			return costIdle
		}
	}
	cost = [...]int8{judging.Unused: costIdle, judging.Reported: costReported, judging.Proven: costBusy}[d.Unknown]
	for _, use := range d.Uses {
		if p := use.Process; c.ending[p] > 0 || d.Host.EndsBy(p, c.by) {
			cost = max(cost, costEndsAnyway)
		} else {
			cost = max(cost, costOfUse(p))
		}
	}
	return cost
}

func costOfUse(p *snapshot.Process) int8 {
	if p.UID == nil || *p.CountsForUID() == 0 {
		return costReported
	}
	return costBusy
}
