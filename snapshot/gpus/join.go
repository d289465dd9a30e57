package gpus

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
)

// Of lists a host's GPUs by index. A process that uses several is on each of them.
func Of(s *snapshot.Snapshot) []GPU {
	environments := snapshot.ByID(s.Environments)
	list, position := make([]GPU, len(s.Devices)), make(map[snapshot.DeviceIndex]int, len(s.Devices))
	described := slices.ContainsFunc(s.Devices, func(d snapshot.Device) bool { return d.UUID != "" })
	for i := range s.Devices {
		list[i], position[s.Devices[i].Index] = gpuOf(s, &s.Devices[i], environments), i
	}
	used := make([]bool, len(list)) // by more than a desktop on its screen and unproved processes
	for i := range s.Processes {
		p := &s.Processes[i]
		for _, usage := range p.Usage {
			if at, known := position[usage.Index]; known {
				process := processOf(p, usage, environments[p.EID])
				used[at] = used[at] || !p.NodeMissing && !s.OfDesktop(usage)
				process.Instances = list[at].own(p.Instances)
				list[at].Processes = append(list[at].Processes, process)
			}
		}
	}
	for i := range s.More {
		for _, index := range s.More[i].GPUs {
			if at, known := position[index]; known {
				used[at] = true
			}
		}
	}
	for i := range list {
		d := &s.Devices[i]
		lost := described && d.UUID == "" || d.ProcessesUnknown || d.Unidentified || d.Problem != "" ||
			!d.Unified && list[i].fails() || d.MIGMode && len(d.Instances) == 0
		switch g := &list[i]; {
		case d.Failed:
			g.State = Failed
		case d.Unusable != "":
			g.State, g.Problem = Unusable, Problem(strings.TrimSuffix(d.Unusable+"; "+d.Problem, "; "))
		default:
			g.State = g.state(lost, used[i])
		}
	}
	slices.SortFunc(list, func(a, b GPU) int { return cmp.Compare(a.Index, b.Index) })
	return list
}

// fails says whether the driver knows the GPU but can't measure it.
func (g *GPU) fails() bool {
	return g.UUID != "" && g.MemoryUsed == nil && g.Utilization == nil && g.Temperature == nil && g.Power == nil
}

// InUse returns the states of GPUs that may be in use, except for attachments, which the state files know better.
func InUse(list []GPU) map[snapshot.DeviceIndex]State {
	states := make(map[snapshot.DeviceIndex]State)
	for i := range list {
		g := &list[i]
		switch {
		case g.State == Failed, g.State == Unusable:
			states[g.Index] = g.State
		case g.MIGMode:
			states[g.Index] = MIG
		case g.State == Unknown, g.Problem != "":
			states[g.Index] = Unknown
		case len(g.Processes) > 0, g.State == Idle, g.State == Busy:
			states[g.Index] = g.State
		}
	}
	return states
}

// Last lists the GPUs to give out after others in the same state, in this order: those with an unknown display, with an
// active one or less than half of the largest memory, and with both.
func Last(list []GPU) []snapshot.DeviceIndex {
	var largest int64
	for i := range list {
		if total := list[i].MemoryTotal; total != nil {
			largest = max(largest, *total)
		}
	}
	rank := func(g *GPU) (rank int) {
		if g.Display == nil {
			rank = 1
		} else if *g.Display {
			rank = 2
		}
		if g.MemoryTotal != nil && *g.MemoryTotal < largest/2 {
			rank += 2
		}
		return rank
	}
	sorted := slices.Clone(list)
	slices.SortStableFunc(sorted, func(a, b GPU) int { return cmp.Compare(rank(&a), rank(&b)) })
	var last []snapshot.DeviceIndex
	for i := range sorted {
		if rank(&sorted[i]) > rank(&sorted[0]) {
			last = append(last, sorted[i].Index)
		}
	}
	return last
}

// Unexplained is memory in use without a visible process; 0 for as little as a driver itself uses.
func (g *GPU) Unexplained() int64 {
	if len(g.Processes) > 0 || g.MemoryUsed == nil || *g.MemoryUsed < hiddenBytes {
		return 0
	}
	return *g.MemoryUsed
}

// state is a working GPU's. lost says that the driver doesn't report all of it.
func (g *GPU) state(lost, used bool) State {
	switch {
	case used && g.Utilization != nil && *g.Utilization == 0:
		return Idle
	case used:
		return Busy
	case lost, g.Unexplained() > 0:
		return Unknown
	case len(g.Attached) > 0:
		return Attached
	case g.MIGMode:
		return MIG
	}
	return Free
}
