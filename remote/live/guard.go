package live

import (
	"fmt"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

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
