package enforce

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// env-memory comes after the rules of processes, since what these end frees memory.
var environmentRules = []rule{envMemoryRule, idleRule, maxDurationRule}

// RuleEnvMemory is about environments that use more memory of a device than their capacity.
const RuleEnvMemory Rule = "env-memory"

var envMemoryRule = rule{
	Setting: Setting{
		strictyaml.NewSwitch(string(RuleEnvMemory), func(s *Settings) *bool { return &s.EnvMemory }),
		ByHost,
	},
	advice: "Use less memory on that GPU, or raise the environment's capacity in its shell, if the GPU has enough " +
		"free memory: genv config gpu-memory AMOUNT.",
	adviceRun: "Use less memory on that GPU, or start it again with more: genv run --gpu-memory AMOUNT.",
	line: func(f Finding) string {
		return fmt.Sprintf("Environment %s is using %s on device %s which is %s over its capacity of %s",
			f.EID, text.Megabytes(f.Memory.UsedBytes), text.JoinIndices(f.Devices), text.Megabytes(f.Memory.bytes()),
			f.Memory.Capacity)
	},
}

// RuleIdle is about attached devices that aren't used.
const RuleIdle Rule = "idle"

const adviceLowPower = "Save your work, and end what doesn't compute: a GPU that computes draws more power. What " +
	"draws more before that may stay."

const adviceIdleEnds = "Save your work, and end what computes nothing. What computes on the GPU before that may stay."

const adviceIdleEnded = "Start it again when it computes: what keeps a GPU without computing is ended."

const adviceIdle = "Your processes stay until somebody else is given it, or until they compute there: then they end " +
	"%s. %s"

func keepIdle(runs bool) string {
	if runs {
		return "Compute there before that, or end it."
	}
	return "Attach it again before that: genv attach."
}

var idleRule = rule{
	Setting: Setting{strictyaml.NewOptional(string(RuleIdle),
		func(s *Settings) **Idle { return &s.Idle }, "{after: 2h, below: 5%}", readIdle, Idle.String), ByHost | ByUser},
	advice: fmt.Sprintf(adviceIdle, "after another warning", keepIdle(false)),
	line: func(f Finding) string {
		what := fmt.Sprintf("GPU %s of environment %s has been idle", text.JoinIndices(f.Devices), f.EID)
		switch gpu := text.JoinIndices(f.Devices); {
		case f.BelowPower > 0:
			what = fmt.Sprintf("GPU %s has drawn less than %d%% of its power limit", gpu, f.BelowPower)
		case f.PID != 0:
			what = fmt.Sprintf("Process %d has computed nothing on GPU %s", f.PID, gpu)
		}
		return fmt.Sprintf("%s for %s, and %s are allowed", what, text.ShortDuration(f.For), text.ShortDuration(f.Limit))
	},
}

// Idle says when a person's device is idle: unused, or computing or drawing little in every measurement.
type Idle struct {
	After time.Duration // without a break
	// Below is the utilization, and BelowPower the power as a part of the device's limit, in per cent, below which a
	// device with processes counts as idle; 0 for none.
	Below, BelowPower int
	End               bool  // also ends processes if all of their devices are idle
	Warn              *Warn // nil for that of all rules
}

func readIdle(n *strictyaml.Node) Idle {
	var idle Idle
	hasAfter := false
	n.Map(strictyaml.Keys{
		"after":       func(n *strictyaml.Node) { hasAfter, idle.After = true, n.Duration(time.Minute, year) },
		"below":       func(n *strictyaml.Node) { idle.Below = readPercent(n) },
		"end":         func(n *strictyaml.Node) { idle.End = n.Bool() },
		"warn":        func(n *strictyaml.Node) { idle.Warn = new(ReadWarn(n)) },
		"below-power": func(n *strictyaml.Node) { idle.BelowPower = readPercent(n) },
	})
	if n.IsMap() && !hasAfter {
		n.Failf("idle: the time is missing; write it as {after: 2h}")
	}
	return idle
}

func readPercent(n *strictyaml.Node) int {
	text := n.Scalar()
	p, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	if err != nil || p < 0 || p > 100 {
		n.Failf("%q is not a percentage; write it as 5%%", text)
		return 0
	}
	return p
}

// String is the setting as policies write it.
func (i Idle) String() string {
	s := "after: " + text.FormatDuration(i.After)
	if i.Below > 0 {
		s += fmt.Sprintf(", below: %d%%", i.Below)
	}
	if i.BelowPower > 0 {
		s += fmt.Sprintf(", below-power: %d%%", i.BelowPower)
	}
	if i.End {
		s += ", end: true"
	}
	if i.Warn != nil {
		s += fmt.Sprintf(", warn: %s", i.Warn)
	}
	return "{" + s + "}"
}

// RuleMaxDuration is about devices that have been attached for too long.
const RuleMaxDuration Rule = "max-duration"

var maxDurationRule = rule{
	Setting: Setting{strictyaml.NewDuration(string(RuleMaxDuration),
		func(s *Settings) *time.Duration { return &s.MaxDuration }, "7d", time.Minute, year), ByHost | ByUser},
	advice: "Save your work: what goes on using the GPU may be ended. Attach it again afterwards, if it is free: " +
		"genv attach.",
	adviceRun: "Save your work: what goes on using the GPU may be ended. Start it again afterwards with genv run.",
	line: func(f Finding) string {
		return fmt.Sprintf("Environment %s is attached to GPU %s for %s, and %s are allowed",
			f.EID, text.JoinIndices(f.Devices), text.ShortDuration(f.For), text.ShortDuration(f.Limit))
	},
}
