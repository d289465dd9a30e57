package enforce

import (
	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/snapshot"
)

// process is the index of a process of the host that is being counted.
func (all *allocations) process(h *hostView, p *snapshot.Process) int {
	i, known := all.find(p)
	if known {
		return i
	}
	if all.many != nil {
		all.many[p] = i
	}
	if i == 0 {
		all.processes, all.Processes = make([]*snapshot.Process, 0, all.room), make([]holdings.Process, 0, all.room)
	}
	_, stuck := all.j.stuckBecause(h, p)
	all.processes = append(all.processes, p)
	all.Processes = append(all.Processes, holdings.Process{
		Host: all.host, PID: p.PID, Ends: h.draft.terminates(p), Stuck: stuck,
		Reported: p.UID == nil || *p.CountedUID() == 0,
	})
	return i
}

func (j *judgement) countProcesses() (n int) {
	for _, h := range j.hosts {
		n += len(h.snapshot.Processes)
	}
	return n
}

// find looks through a few processes, and indexes many. The index of one that is new is that
// of the next.
func (all *allocations) find(p *snapshot.Process) (index int, known bool) {
	if all.many == nil {
		for i, other := range all.processes[all.from:] {
			if other == p {
				return all.from + i, true
			}
		}
		if len(all.processes)-all.from < 16 {
			return len(all.processes), false
		}
		all.many = make(map[*snapshot.Process]int)
		for i, other := range all.processes[all.from:] {
			all.many[other] = all.from + i
		}
	}
	if index, known = all.many[p]; known {
		return index, true
	}
	return len(all.processes), false
}

// addProcess adds a process that ends when the user loses the device, and what it uses. It is
// in an environment, or in none.
func (all *allocations) addProcess(u *allocation, h *hostView, d *holdings.Device, in *envView, p *snapshot.Process) {
	attached := in != nil && in.env.Username == u.Name && in.Attached(d.Index)
	d.Processes = append(d.Processes, holdings.Use{Process: all.process(h, p), Attached: attached})
	if !p.Unproved() { // else any user may have started it
		var used snapshot.Memory
		if use := p.Uses(d.Index); use != nil {
			used = use.Memory
		}
		d.AddUsed(used)
	}
}
