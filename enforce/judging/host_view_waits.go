package judging

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// WaitKey is what a wait is known by on all its hosts. Its ID alone is public, and others can choose the same.
func (j *Judgement) WaitKey(w *snapshot.Wait) string {
	return string(j.Policy.Account(w.Username)) + "/" + w.ID
}

// KeptGPUs are the GPUs that are kept for a wait alone, with its ID; without one if it is several. A host may have very
// many waits, so that this is found once.
func (h *HostView) KeptGPUs() map[snapshot.DeviceIndex]string {
	if h.Kept != nil {
		return h.Kept
	}
	h.Kept = make(map[snapshot.DeviceIndex]string)
	for i := range h.Snapshot.Waits {
		w := &h.Snapshot.Waits[i]
		indices := w.Offered
		if taken := h.j.Next.TakenFor[h.j.WaitKey(w)]; taken.Host == h.Name {
			indices = slices.Concat(indices, taken.GPUs)
		}
		for _, index := range indices {
			if id, known := h.Kept[index]; known && id != w.ID {
				h.Kept[index] = ""
			} else {
				h.Kept[index] = w.ID
			}
		}
	}
	return h.Kept
}

// FindUsers finds the processes on each device of the host, without daemons that are protected and what draws for a
// desktop: these are beside everybody's jobs.
func (h *HostView) FindUsers() {
	if h.Users != nil {
		return
	}
	h.Users = make(map[snapshot.DeviceIndex][]*snapshot.Process)
	find := func(p *snapshot.Process) {
		for _, use := range p.Usage {
			if !h.j.Fleet.Protects(p) && !h.IgnoresUse(use) {
				h.Users[use.Index] = append(h.Users[use.Index], p)
			}
		}
	}
	for i := range h.Snapshot.Processes {
		find(&h.Snapshot.Processes[i])
	}
	for _, p := range h.More {
		find(p)
	}
}

// Clock is what the host's own clock said when it was asked.
func (h *HostView) Clock() time.Time {
	clock, _ := h.Snapshot.Clock(h.At)
	return clock
}
