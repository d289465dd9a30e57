package enforce

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

var processRules = []rule{nonEnvProcessesRule, unreadableRule, envDevicesRule, processAgeRule}

// RuleNonEnvProcesses is about processes outside of environments.
const RuleNonEnvProcesses Rule = order.RuleOutside

var nonEnvProcessesRule = rule{
	Setting:   Setting{outsideSetting, ByHost},
	isMovable: true,
	advice:    "End it, and start it in an environment: genv run --gpus 1 python train.py.",
	line:      func(f Finding) string { return fmt.Sprintf("Process %d is not running in a GPU environment", f.PID) },
}

var outsideSetting = strictyaml.Setting[Settings]{
	Key: string(RuleNonEnvProcesses),
	Read: func(s *Settings, n *strictyaml.Node) {
		s.NonEnvProcesses, s.CountOutside = false, false
		if n.IsBool() {
			s.NonEnvProcesses = n.Bool()
			return
		}
		s.CountOutside = n.OneOf("true", "false", "count") == "count"
	},
	Text: func(s *Settings) string {
		switch {
		case s.NonEnvProcesses:
			return "on"
		case s.CountOutside:
			return "count"
		}
		return "off"
	},
	Copy: func(to, from *Settings) {
		to.NonEnvProcesses, to.CountOutside = from.NonEnvProcesses, from.CountOutside
	},
}

// RuleUnreadable is about processes that the other rules can't judge.
const RuleUnreadable Rule = "unreadable-processes"

var unreadableRule = rule{
	Setting: Setting{strictyaml.NewChoice(string(RuleUnreadable), "end", "report",
		func(s *Settings) *bool { return &s.EndUnreadable }), ByHost},
	isMovable: true,
	advice:    "Start it without that file system, or with fewer environment variables.",
	line:      func(f Finding) string { return fmt.Sprintf("Process %d can't be judged: %s", f.PID, f.Unreadable.Why) },
}

// RuleEnvDevices is about processes on devices that aren't attached to their environment.
const RuleEnvDevices Rule = "env-devices"

var envDevicesRule = rule{
	Setting: Setting{
		strictyaml.NewSwitch(string(RuleEnvDevices), func(s *Settings) *bool { return &s.EnvDevices }),
		ByHost,
	},
	isMovable: true,
	advice:    "Use only GPUs that are attached: genv gpus shows them, genv attach --index N attaches one.",
	adviceRun: "End it, and start it with as many GPUs as it uses: genv run --gpus N.",
	line: func(f Finding) string {
		return fmt.Sprintf("Process %d from environment %s is using non-attached GPU(s) %s", f.PID, f.EID,
			text.JoinIndices(f.Devices))
	},
}

// RuleMaxProcessAge is about processes that have run for too long.
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
