package enforce

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// RuleMaxDuration is about devices that have been attached for too long.
const RuleMaxDuration Rule = "max-duration"

var maxDurationRule = rule{
	Setting: Setting{strictyaml.NewDuration(string(RuleMaxDuration),
		func(s *Settings) *time.Duration { return &s.MaxDuration }, "7d", time.Minute, year), ByHost | ByUser},
	advice: "Save your work: what goes on using the GPU may be ended. Attach it again afterwards, if it is free: " +
		"genv attach.",
	adviceRun: "Save your work: what goes on using the GPU may be ended. Start it again afterwards with genv run.",
	line: func(f Finding) string {
		return fmt.Sprintf("Environment %s is attached to device %s for %s, and %s are allowed",
			f.EID, text.JoinIndices(f.Devices), text.ShortDuration(f.For), text.ShortDuration(f.Limit))
	},
}
