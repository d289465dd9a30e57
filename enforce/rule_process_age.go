package enforce

import (
	"cmp"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// RuleMaxProcessAge is about processes that have been running for too long.
const RuleMaxProcessAge Rule = "max-process-age"

var processAgeRule = rule{
	Setting: Setting{strictyaml.NewDuration(string(RuleMaxProcessAge),
		func(s *Settings) *time.Duration { return &s.MaxProcessAge }, "12h", time.Minute, year), ByHost | ByUser},
	advice: "Save your work: write a checkpoint, end the process, and start again from there.",
	line: func(f Finding) string {
		return fmt.Sprintf("Process %d has been running for %s, and %s are allowed", f.PID, text.ShortDuration(f.For),
			text.ShortDuration(f.Limit))
	},
}

// processAge ends processes that started too long ago. Each has a warning of its own, since
// another one that was old before says nothing about it.
func (j *judgement) processAge(h *hostView) {
	for i := range h.snapshot.Processes {
		p := &h.snapshot.Processes[i]
		if h.exempt[p.PID] || !h.reports(p.Start) || p.EnvUnknown && !h.outsideByPolicy(p) {
			continue
		}
		f := Finding{Rule: RuleMaxProcessAge, For: h.at.Sub(h.snapshot.When(p.Start, snapshot.Date{}))}
		f.User, f.UID = p.Reported()
		settings := h.settings
		if user := cmp.Or(h.userOf(p), f.User); user != "" {
			settings = h.ask(j.policy, user, j.now)
		}
		if f.Limit = settings.MaxProcessAge; f.Limit <= 0 || f.For <= f.Limit {
			continue
		}
		j.describe(h, p, &f)
		due := j.checkDue(h, &f, clock{settings.warnOf(f.Rule), []string{f.ID}})
		j.end(&f, due, h, p)
		j.add(f)
	}
}
