package live

import (
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// Mark is a GPU in one character, for views that show many.
type Mark byte

// The marks. Each GPU has the first one that is true of it, in this order.
const (
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

// Marks looks up what the marks of the GPUs depend on, once for all of them.
func (f *Fleet) Marks() *Marks {
	m := &Marks{f, make(map[gpuKey]bool)}
	byHost := make(map[snapshot.Hostname][]*Finding)
	ended := make(map[snapshot.Hostname]map[snapshot.PID]bool)
	for i := range f.Findings {
		finding := &f.Findings[i]
		byHost[finding.Host] = append(byHost[finding.Host], finding)
		for _, d := range finding.Detach {
			m.found[gpuKey{d.Host, d.Index}] = true
		}
		for _, p := range finding.Terminate {
			if ended[p.Host] == nil {
				ended[p.Host] = make(map[snapshot.PID]bool)
			}
			ended[p.Host][p.PID] = true
		}
	}
	for i := range f.Hosts {
		m.find(&f.Hosts[i], byHost[f.Hosts[i].Name], ended[f.Hosts[i].Name])
	}
	return m
}

// find finds the GPUs of a host that findings are about. The processes that are ended
// because of a finding may be on other hosts than the finding.
func (m *Marks) find(h *Host, findings []*Finding, ended map[snapshot.PID]bool) {
	if len(findings)+len(ended) == 0 {
		return
	}
	for i := range h.GPUs {
		g, found := &h.GPUs[i], false
		for j := range g.Processes {
			found = found || ended[g.Processes[j].PID]
		}
		for _, finding := range findings {
			found = found || finding.About(h.Name, g)
		}
		if found {
			m.found[gpuKey{h.Name, g.Index}] = true
		}
	}
}

// Of is the mark of a GPU of a host.
func (m *Marks) Of(host snapshot.Hostname, g *gpus.GPU) Mark {
	switch {
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
