package live

import (
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/remote/controller"
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

// Guard is what the kernel guard of a host does, and what it should do.
type Guard struct {
	// Mode is as the host says; empty if it didn't, as one without genv, with an older one,
	// or that failed: that is not GuardOff.
	Mode   snapshot.GuardMode `json:"mode,omitempty"`
	Reason string             `json:"reason,omitempty"` // as in snapshot.Guard
	// Policy is what the policy asks for; empty for a guard that is off, and where nothing
	// is enforced.
	Policy snapshot.GuardMode `json:"policy,omitempty"`
}

// Differs reports whether the guard doesn't do what it should, or can't.
func (g Guard) Differs() bool {
	return g.Policy != "" && g.Policy != g.Mode || g.Mode == snapshot.GuardUnable
}

// String is what people have to know; empty for a guard that is off or unknown, if it needn't
// be on. It is not escaped.
func (g Guard) String() string {
	if g.Policy == "" && (g.Mode == "" || g.Mode == snapshot.GuardOff) {
		return ""
	}
	s := string(g.Mode)
	if s == "" {
		s = "unknown"
	}
	if g.Policy != "" && g.Differs() {
		s += fmt.Sprintf(", although the policy says %s", g.Policy)
	}
	if g.Reason != "" {
		s += ": " + g.Reason
	}
	return s
}

// guard is that of a host that answered with a snapshot.
func (m *moment) guard(h *snapshot.Host, s *snapshot.Snapshot) (g Guard) {
	if s.Guard != nil {
		g.Mode, g.Reason = s.Guard.Mode, s.Guard.Reason
	}
	if m.policy == nil || !m.enforcing || m.cycle.DryRun {
		return g
	}
	if wanted := controller.WantedGuard(m.policy, h, m.cycle.Start).Mode; wanted != guard.Off {
		g.Policy = snapshot.GuardMode(wanted.String())
	}
	return g
}
