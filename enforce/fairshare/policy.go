package fairshare

import (
	"fmt"
	"maps"

	"github.com/seed-3119e985/genv/enforce"
)

// Policy is a policy in which some users may have more devices.
type Policy struct {
	enforce.Policy
	boost  int
	memory Memory
}

// Policy returns the policy by which to judge. It is the same one if no user has a boost.
func (m Memory) Policy(s Setting, policy enforce.Policy) enforce.Policy {
	if s.Boost <= 0 || !m.Free || len(m.Light) == 0 {
		return policy
	}
	return Policy{policy, s.Boost, m}
}

// Settings implements enforce.Policy. A cap of 0 is a ban, and stays.
func (p Policy) Settings(q enforce.Query) *enforce.Settings {
	s := p.Policy.Settings(q)
	if q.User == "" || s.MaxDevices == nil || *s.MaxDevices <= 0 || !p.memory.boosts(q.User) {
		return s
	}
	boosted := *s
	boosted.MaxDevices = new(*s.MaxDevices + p.boost)
	return &boosted
}

// Forget has the warnings begin again of users who had a boost before and have none now, also if
// they had more than that: they are over another cap.
func (m Memory) Forget(before Memory, rules enforce.Memory) enforce.Memory {
	var ended []string
	for _, user := range before.Boosted() {
		if !m.boosts(user) {
			ended = append(ended, fmt.Sprintf("%s/%s", enforce.RuleMaxDevicesPerUser, user))
		}
	}
	if len(ended) == 0 {
		return rules
	}
	rules.Present, rules.Findings = maps.Clone(rules.Present), maps.Clone(rules.Findings)
	for _, id := range ended {
		delete(rules.Present, id)
		if known, found := rules.Findings[id]; found {
			known.Notified = 0
			rules.Findings[id] = known
		}
	}
	return rules
}
