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
	book  *Book
	index int
}

// costAfter is what losing the device costs the user, if the processes in ending end as well.
func (h *held) costAfter(ending map[processOf]bool) int8 {
	cost := int8(costIdle)
	switch h.Unknown {
	case contents.Proven:
		return costBusy
	case contents.Reported:
		cost = costReported
	}
	for _, use := range h.Processes {
		switch {
		case ending[processOf{h.book, use.Process}] || h.book.ends[use.Process]:
			cost = max(cost, costEndsAnyway)
		case h.book.shard.Processes[use.Process].Reported:
			cost = max(cost, costReported)
		default:
			return costBusy
		}
	}
	return cost
}

// setCost finds out the cost of losing the device.
func (h *held) setCost() { h.cost = h.costAfter(nil) }

// busy reports whether the device is proven to be in use, by processes that don't end anyway.
func (h *held) busy() bool { return h.cost == costBusy }

// takeable reports whether a cap may take the device: no exempt process uses it.
func (h *held) takeable() bool { return h.Exempt == contents.Unused }

// counts reports whether the device counts for the user's caps. One that can't be
// taken from the user, since exempt processes use it, counts only if one of the
// user's own uid does: otherwise a job elsewhere could have to end for it.
func (h *held) counts() bool {
	return !h.leaves() && (h.Exempt != contents.Reported || h.costAfter(nil) == costBusy)
}

// leaves reports whether the user loses the device anyway, so that it no longer counts.
// Processes that use it without an attachment must end too.
func (h *held) leaves() bool {
	if len(h.Envs) == 0 && h.Unknown == contents.Proven {
		return false
	}
	for _, env := range h.Envs {
		if !env.Leaves && !(h.book.on[h.Host] && h.book.detached[attachment{h.Host, h.Index, env.EID}]) {
			return false
		}
	}
	for _, use := range h.Processes {
		if !use.Attached && !h.book.ends[use.Process] {
			return false
		}
	}
	return true
}
