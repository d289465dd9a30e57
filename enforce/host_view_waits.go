package enforce

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// waitKey is what a wait is known by on all its hosts. Its ID alone is public, and others can choose the same.
func (j *judgement) waitKey(w *snapshot.Wait) string {
	return string(j.policy.Account(w.Username)) + "/" + w.ID
}

// keptGPUs are the GPUs that are kept for a wait alone, with its ID; without one if it is several. A host may have very
// many waits, so that this is found once.
func (h *hostView) keptGPUs() map[snapshot.DeviceIndex]string {
	if h.kept != nil {
		return h.kept
	}
	h.kept = make(map[snapshot.DeviceIndex]string)
	for i := range h.snapshot.Waits {
		w := &h.snapshot.Waits[i]
		indices := w.Offered
		if taken := h.j.next.TakenFor[h.j.waitKey(w)]; taken.Host == h.name {
			indices = slices.Concat(indices, taken.GPUs)
		}
		for _, index := range indices {
			if id, known := h.kept[index]; known && id != w.ID {
				h.kept[index] = ""
			} else {
				h.kept[index] = w.ID
			}
		}
	}
	return h.kept
}

// findUsers finds the processes on each device of the host, without daemons that are protected and what draws for a
// desktop: these are beside everybody's jobs.
func (h *hostView) findUsers() {
	if h.users != nil {
		return
	}
	h.users = make(map[snapshot.DeviceIndex][]*snapshot.Process)
	find := func(p *snapshot.Process) {
		for _, use := range p.Usage {
			if !h.j.fleet.protects(p) && !h.ignoresUse(use) {
				h.users[use.Index] = append(h.users[use.Index], p)
			}
		}
	}
	for i := range h.snapshot.Processes {
		find(&h.snapshot.Processes[i])
	}
	for _, p := range h.more {
		find(p)
	}
}

// clock is what the host's own clock said when it was asked.
func (h *hostView) clock() time.Time {
	clock, _ := h.snapshot.Clock(h.at)
	return clock
}
