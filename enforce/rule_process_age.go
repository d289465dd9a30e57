package enforce

import (
	"fmt"
	"time"

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
