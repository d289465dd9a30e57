package live

import (
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// Mark is a GPU in one character, for views that show many.
type Mark byte

// The marks. Each GPU has the first one that is true of it, in this order.
const (
	MarkFailed  Mark = 'F'
	MarkUnknown Mark = '?'
	MarkFinding Mark = '!' // a finding is about it
	MarkExempt  Mark = 'x' // an operator exempted it, or one of its users
	MarkBusy    Mark = 'A'
	MarkFree    Mark = '.'
	MarkUnused  Mark = 'a' // attached, or held by processes, and idle
)

// Marks has the marks of a fleet's GPUs.
type Marks struct {
	fleet *Fleet
	found map[gpuKey]bool // the GPUs that findings are about
}

// processKey is a process of a host.
type processKey struct {
	host snapshot.Hostname
	pid  snapshot.PID
}

// Marks looks up what the marks of the GPUs depend on, once for all of them. A host may make
// up thousands of findings and processes: they are not compared one by one. The processes that
// are ended because of a finding may be on other hosts than the finding.
func (f *Fleet) Marks() *Marks {
	m := &Marks{f, make(map[gpuKey]bool)}
	processes := make(map[processKey]bool)
	for i := range f.Findings {
		finding := &f.Findings[i]
		for _, index := range finding.Devices {
			m.found[gpuKey{finding.Host, index}] = true
		}
		for _, d := range finding.Detach {
			m.found[gpuKey{d.Host, d.Index}] = true
		}
		if finding.PID != 0 {
			processes[processKey{finding.Host, finding.PID}] = true
		}
		for _, p := range finding.Terminate {
			processes[processKey{p.Host, p.PID}] = true
		}
	}
	for i := range f.Hosts {
		h := &f.Hosts[i]
		for j := range h.GPUs {
			g := &h.GPUs[j]
			if len(processes) > 0 && slices.ContainsFunc(g.Processes, func(p gpus.Process) bool { return processes[processKey{h.Name, p.PID}] }) {
				m.found[gpuKey{h.Name, g.Index}] = true
			}
		}
	}
	return m
}

// Of is the mark of a GPU of a host.
func (m *Marks) Of(host snapshot.Hostname, g *gpus.GPU) Mark {
	switch {
	case g.State == gpus.Failed:
		return MarkFailed
	case g.State == gpus.Unknown:
		return MarkUnknown
	case m.found[gpuKey{host, g.Index}]:
		return MarkFinding
	case m.fleet.Exempt(host, g) != nil:
		return MarkExempt
	case g.State == gpus.Busy:
		return MarkBusy
	case g.State == gpus.Free:
		return MarkFree
	}
	return MarkUnused
}
