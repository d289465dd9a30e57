package enforce

import (
	"fmt"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// RuleEnvMemory is about environments that use more memory of a device than they may.
const RuleEnvMemory Rule = "env-memory"

var envMemoryRule = rule{
	Setting: Setting{
		strictyaml.NewSwitch(string(RuleEnvMemory), func(s *Settings) *bool { return &s.EnvMemory }),
		ByHost,
	},
	advice: "Use less memory on that GPU, or raise the environment's capacity in its shell, if the GPU has enough " +
		"free memory: " +
		"genv config gpu-memory AMOUNT.",
	adviceRun: "Use less memory on that GPU, or start it again with more: genv run --gpu-memory AMOUNT.",
	line: func(f Finding) string {
		return fmt.Sprintf("Environment %s is using %s on device %s which is %s over its capacity of %s",
			f.EID, text.Megabytes(f.Memory.UsedBytes), text.JoinIndices(f.Devices), text.Megabytes(f.Memory.bytes()),
			f.Memory.Capacity)
	},
}
