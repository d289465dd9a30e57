package rules

import (
	"cmp"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
)

// processAge ends processes that started too long ago. Each has a warning of its own, since
// another one that was old before says nothing about it.
func (j *judge) processAge(h *judging.HostView) {
	for i := range h.Snapshot.Processes {
		p := &h.Snapshot.Processes[i]
		if h.Exempt[p.PID] || !h.Reports(p.Start) || p.EnvUnknown && !h.OutsideByPolicy(p) {
			continue
		}
		f := enforce.Finding{Rule: enforce.RuleMaxProcessAge, For: h.At.Sub(h.Snapshot.When(p.Start, snapshot.Date{}))}
		f.User, f.UID = p.Reported()
		settings := h.Settings
		if user := cmp.Or(h.UserOf(p), f.User); user != "" {
			settings = h.Ask(j.Policy, user, j.Now)
		}
		if f.Limit = settings.MaxProcessAge; f.Limit <= 0 || f.For <= f.Limit {
			continue
		}
		j.describe(h, p, &f)
		due := j.CheckDue(h, &f, judging.NewClock(settings.WarnOf(f.Rule), f.ID))
		j.End(&f, due, h, p)
		j.Add(f)
	}
}
