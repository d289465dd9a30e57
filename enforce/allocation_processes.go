package enforce

import (
	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/snapshot"
)

// process is the index of a process of the host that is being counted.
func (all *allocations) process(h *hostView, p *snapshot.Process) int {
	if i, known := all.onHost[p]; known {
		return i
	}
	_, stuck := all.j.stuckBecause(h, p)
	i := len(all.Processes)
	all.onHost[p] = i
	all.processes = append(all.processes, p)
	all.Processes = append(all.Processes, holdings.Process{
		Host: all.host, PID: p.PID, Ends: h.draft.terminates(p), Stuck: stuck,
		Reported: p.UID == nil || *p.CountedUID() == 0,
	})
	return i
}

// addProcess adds a process that ends when the user loses the device, and what it uses.
func (all *allocations) addProcess(u *allocation, h *hostView, d *holdings.Device, p *snapshot.Process) {
	env := h.environmentOf(p)
	attached := env != nil && env.env.Username == u.Name && env.Attached(d.Index)
	d.Processes = append(d.Processes, holdings.Use{Process: all.process(h, p), Attached: attached})
	use := p.Uses(d.Index)
	switch {
	case p.Unproved() || d.Used == holdings.UnknownBytes: // any user may have started it
	case use == nil || !use.Memory.Known():
		d.Used = holdings.UnknownBytes
	default:
		d.Used += use.Memory.Bytes()
	}
}

// addCapacity adds what an environment may use of a device: all of it without a capacity.
func addCapacity(d *holdings.Device, device *snapshot.Device, a *snapshot.Attachment) {
	capacity := device.TotalMemory
	if a.GPUMemory.Known() {
		capacity = a.GPUMemory
	}
	switch {
	case d.Bytes == holdings.UnknownBytes:
	case !capacity.Known():
		d.Bytes = holdings.UnknownBytes
	default:
		d.Bytes += capacity.Bytes()
	}
}

// settleBytes is how much device memory the user has by a device: the sum of what
// the environments may use, or what its processes use if that is more, and at
// most all of it. Unknown is not zero.
func settleBytes(d *holdings.Device, total snapshot.Memory) {
	if d.Bytes == holdings.UnknownBytes || d.Used == holdings.UnknownBytes && len(d.Envs) == 0 {
		d.Bytes = holdings.UnknownBytes
		return
	}
	if d.Bytes = max(d.Bytes, d.Used); total.Known() {
		d.Bytes = min(d.Bytes, total.Bytes())
	}
}
