package enforce

import (
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/strictyaml"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// The caps of a user on all hosts together.
const (
	RuleMaxEnvsPerUser    Rule = "max-envs-per-user"
	RuleMaxDevicesPerUser Rule = "max-devices-per-user"
	RuleMaxMemoryPerUser  Rule = "max-memory-per-user"
)

// adviceGiveBack is for when nothing is left to give back, or it is not known what: see Finding.Advice.
const adviceGiveBack = adviceEndJobs + "; in the shell of an environment genv detach --index N gives a GPU back."

const adviceEndJobs = "Before you take more GPUs, end jobs that you need less"

var maxEnvsRule = rule{
	Setting: newCap(string(RuleMaxEnvsPerUser), func(s *Settings) **int { return &s.MaxEnvs }, "4"),
	advice:  "End environments that you need no more: exit their shells, or end what genv run started.",
	line: func(f Finding) string {
		return fmt.Sprintf("User %s has %d environments%s which is %d more than the maximum allowed",
			f.User, f.Count.Used, f.Count.where(), f.Count.Used-f.Count.Limit)
	},
	limit:  func(s *Settings) *int64 { return number(s.MaxEnvs) },
	counts: CapEnvironments,
}

var maxDevicesRule = rule{
	Setting: newCap(string(RuleMaxDevicesPerUser), func(s *Settings) **int { return &s.MaxDevices }, "2"),
	advice:  adviceGiveBack,
	line: func(f Finding) string {
		return fmt.Sprintf("User %s is using %d devices%s which is %d more than the maximum allowed",
			f.User, f.Count.Used, f.Count.where(), f.Count.Used-f.Count.Limit)
	},
	limit:  func(s *Settings) *int64 { return number(s.MaxDevices) },
	counts: CapGPUs,
}

var maxMemoryRule = rule{
	Setting: Setting{strictyaml.NewOptional(string(RuleMaxMemoryPerUser),
		func(s *Settings) **snapshot.Memory { return &s.MaxMemory },
		"80g", readMemory, snapshot.Memory.String), ByUser},
	advice: adviceGiveBack,
	line: func(f Finding) string {
		return fmt.Sprintf("User %s is using %s of device memory%s which is %s more than the maximum allowed",
			f.User, text.GiB(f.Memory.UsedBytes), f.Count.where(), text.GiB(f.Memory.bytes()))
	},
	limit: func(s *Settings) *int64 {
		if s.MaxMemory == nil {
			return nil
		}
		bytes := s.MaxMemory.Bytes()
		return &bytes
	},
	counts: CapMemory,
}

func number(limit *int) *int64 {
	if limit == nil {
		return nil
	}
	n := int64(max(0, *limit))
	return &n
}

// capsRule is that of the policy's list; see Cap.
var capsRule = rule{
	// A list is no value of Settings: Settings keeps none of it.
	Setting: Setting{strictyaml.Setting[Settings]{Key: string(RuleCaps), Copy: func(_, _ *Settings) {}}, ByUser},
	advice:  adviceGiveBack,
	line:    func(f Finding) string { return f.Cap.line(&f) },
}

func readMemory(n *strictyaml.Node) snapshot.Memory {
	m, err := snapshot.ParseMemory(n.Scalar())
	if err != nil {
		n.Failf("%v, or false for no cap", err)
	}
	return m
}

// Caps calls yield for each cap of a person with a key of its own, until that returns false.
func (s *Settings) Caps(yield func(rule Rule, kind CapKind, limit int64) bool) {
	for i := range rules {
		if rules[i].limit == nil {
			continue
		}
		if limit := rules[i].limit(s); limit != nil && !yield(Rule(rules[i].Key), rules[i].counts, *limit) {
			return
		}
	}
}
