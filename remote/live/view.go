package live

import (
	"cmp"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// Index makes look-ups in a FleetState fast: a host may invent thousands of findings and processes.
type Index struct {
	*FleetState
	Counts gpus.StateCounts // of all hosts

	hosts    map[snapshot.Hostname]*FleetHost
	findings map[snapshot.Hostname][]*Finding
	gpus     map[gpuKey][]*Finding
	pids     map[hostPID][]*Finding
	found    map[gpuKey]bool // GPUs with a finding, or with processes that one ends
}

type hostPID struct {
	host snapshot.Hostname
	pid  snapshot.PID
}

// NewIndex returns the Index of a FleetState.
func NewIndex(f *FleetState) *Index {
	v := &Index{
		FleetState: f, hosts: make(map[snapshot.Hostname]*FleetHost, len(f.Hosts)),
		findings: make(map[snapshot.Hostname][]*Finding),
		gpus:     make(map[gpuKey][]*Finding), pids: make(map[hostPID][]*Finding), found: make(map[gpuKey]bool),
	}
	ended := make(map[hostPID]bool)
	for i := range f.Findings {
		v.add(&f.Findings[i], ended)
	}
	for i := range f.Hosts {
		h := &f.Hosts[i]
		v.hosts[h.Name] = h
		v.Counts.Add(h.GPUs...)
		for j := 0; j < len(h.GPUs) && len(ended) > 0; j++ {
			g := &h.GPUs[j]
			for k := range g.Processes {
				if ended[hostPID{h.Name, g.Processes[k].PID}] {
					v.found[gpuKey{h.Name, g.Index}] = true
				}
			}
		}
	}
	return v
}

func (v *Index) add(f *Finding, ended map[hostPID]bool) {
	if f.Host != "" {
		v.findings[f.Host] = append(v.findings[f.Host], f)
	}
	for _, index := range f.Devices {
		key := gpuKey{f.Host, index}
		v.gpus[key], v.found[key] = append(v.gpus[key], f), true
	}
	for _, d := range f.Detach {
		v.found[gpuKey{d.Host, d.Index}] = true
	}
	if key := (hostPID{f.Host, f.PID}); f.PID != 0 {
		v.pids[key], ended[key] = append(v.pids[key], f), true
	}
	for _, p := range f.Terminate {
		ended[hostPID{p.Host, p.PID}] = true
	}
}

// Host returns a host by name; nil for none.
func (v *Index) Host(name snapshot.Hostname) *FleetHost { return v.hosts[name] }

// FindingsOn returns the findings on a host.
func (v *Index) FindingsOn(host snapshot.Hostname) []*Finding { return v.findings[host] }

// FindingsOf returns the findings about a process.
func (v *Index) FindingsOf(host snapshot.Hostname, pid snapshot.PID) []*Finding {
	return v.pids[hostPID{host, pid}]
}

// FindingsAbout returns the findings about a GPU and its processes. One about both appears twice.
func (v *Index) FindingsAbout(host snapshot.Hostname, g *gpus.GPU) []*Finding {
	list := append([]*Finding(nil), v.gpus[gpuKey{host, g.Index}]...)
	for i := range g.Processes {
		list = append(list, v.FindingsOf(host, g.Processes[i].PID)...)
	}
	return list
}

// Mark shows a GPU as one character.
type Mark byte

// The marks. A GPU has the first one that applies.
const (
	MarkFailed   Mark = 'F'
	MarkUnusable Mark = 'U'
	MarkUnknown  Mark = '?'
	MarkFinding  Mark = '!' // a finding is about it
	MarkExempt   Mark = 'x' // an operator exempted it, or one of its users
	MarkBusy     Mark = 'A'
	MarkFree     Mark = '.'
	MarkMIG      Mark = 'm' // in MIG mode, and no instance is attached or used
	MarkUnused   Mark = 'a' // attached, or held by processes, and idle
)

var marks = map[gpus.State]Mark{
	gpus.Failed: MarkFailed, gpus.Unusable: MarkUnusable, gpus.Unknown: MarkUnknown, gpus.Busy: MarkBusy,
	gpus.Free: MarkFree, gpus.MIG: MarkMIG, gpus.Attached: MarkUnused, gpus.Idle: MarkUnused,
}

// Mark returns the mark of a GPU.
func (v *Index) Mark(host snapshot.Hostname, g *gpus.GPU) Mark {
	_, exempt := v.Exempt(host, g)
	switch mark := cmp.Or(marks[g.State], MarkUnknown); {
	case mark == MarkFailed, mark == MarkUnusable, mark == MarkUnknown:
		return mark
	case v.found[gpuKey{host, g.Index}]:
		return MarkFinding
	case exempt:
		return MarkExempt
	default:
		return mark
	}
}
