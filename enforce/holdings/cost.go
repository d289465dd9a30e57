package holdings

import "github.com/seed-3119e985/genv/enforce/contents"

// The cost for the user of losing a device, the lowest first. A device whose use is
// only reported, without a uid of the user, is taken before one that is proven to
// be in use: whoever forges state on one host can't have a job ended on another.
const (
	costIdle = iota
	costEndsAnyway
	costReported
	costBusy
)

// processOf is a process of one of the shards.
type processOf struct {
	remaining *Remaining
	index     int
}

// assessment is what is known of a device while nothing of its host is taken: what losing it costs
// the user, and whether the user loses it anyway. Deciding about caps asks for both of every
// device, user by user; they are found out host by host, where the data is at hand.
type assessment struct {
	known  bool
	cost   int8
	leaves bool
}

func (d *Device) assess(processes []Process) {
	ends := func(process int) bool { return processes[process].Ends }
	d.atFirst = assessment{known: true, cost: d.costIf(ends, processes), leaves: d.leavesIf(ends, func(*Attached) bool { return false })}
}

// costIf is what losing the device costs the user, if these processes end as well.
func (d *Device) costIf(ends func(process int) bool, processes []Process) int8 {
	cost := int8(costIdle)
	switch d.Unknown {
	case contents.Proven:
		return costBusy
	case contents.Reported:
		cost = costReported
	}
	for _, use := range d.Processes {
		switch {
		case ends(use.Process):
			cost = max(cost, costEndsAnyway)
		case processes[use.Process].Reported:
			cost = max(cost, costReported)
		default:
			return costBusy
		}
	}
	return cost
}

// leavesIf reports whether the user loses the device, so that it no longer counts, if these
// processes end and these environments lose it. Processes that use it without an attachment must
// end too.
func (d *Device) leavesIf(ends func(process int) bool, loses func(*Attached) bool) bool {
	if len(d.Envs) == 0 && d.Unknown == contents.Proven {
		return false
	}
	for i := range d.Envs {
		if env := &d.Envs[i]; !env.Leaves && !loses(env) {
			return false
		}
	}
	for _, use := range d.Processes {
		if !use.Attached && !ends(use.Process) {
			return false
		}
	}
	return true
}

// asAtFirst reports whether what was known of the device at first still holds.
func (d *candidate) asAtFirst() bool { return d.atFirst.known && !d.remaining.changed[d.Host] }

// costAfter is what losing the device costs the user, if the processes in ending end as well.
func (d *candidate) costAfter(ending map[processOf]bool) int8 {
	if len(ending) == 0 && d.asAtFirst() {
		return d.atFirst.cost
	}
	ends := func(process int) bool { return ending[processOf{d.remaining, process}] || d.remaining.ends[process] }
	return d.costIf(ends, d.remaining.shard.Processes)
}

// setCost finds out the cost of losing the device.
func (d *candidate) setCost() { d.cost = d.costAfter(nil) }

// busy reports whether the device is proven to be in use, by processes that don't end anyway.
func (d *candidate) busy() bool { return d.cost == costBusy }

// takeable reports whether a cap may take the device: no exempt process uses it.
func (d *candidate) takeable() bool { return d.Exempt == contents.Unused }

// counts reports whether the device counts for the user's caps. One that can't be
// taken from the user, since exempt processes use it, counts only if one of the
// user's own uid does: otherwise a job elsewhere could have to end for it.
func (d *candidate) counts() bool {
	return !d.leaves() && (d.Exempt != contents.Reported || d.costAfter(nil) == costBusy)
}

// leaves reports whether the user loses the device anyway.
func (d *candidate) leaves() bool {
	if d.asAtFirst() {
		return d.atFirst.leaves
	}
	ends := func(process int) bool { return d.remaining.ends[process] }
	return d.leavesIf(ends, func(env *Attached) bool { return d.remaining.detached[attachment{d.Host, d.Index, env.EID}] })
}
