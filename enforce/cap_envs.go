package enforce

import (
	"cmp"
	"slices"
	"time"
)

// judgeEnvs takes environments beyond the cap: those without any device first, from which there is nothing to
// take, then those without a process, then the newest. The environments themselves stay: they are people's shells.
func (c *capOn) judgeEnvs() {
	var envs []heldEnv
	has := make(map[*held]int)
	for _, u := range c.people {
		for _, e := range u.envs {
			if (c.host == nil || e.h == c.host) && (c.OnHost == nil || c.OnHost(e.h.name, e.h.labels)) {
				envs = append(envs, e)
				has[u]++
			}
		}
	}
	if int64(len(envs)) <= c.limit {
		return
	}
	f := Finding{
		Rule: c.rule, Count: &CountExcess{Used: len(envs), Limit: int(c.limit)},
		CountedOn: hostsOf(envs, func(e heldEnv) *hostView { return e.h }),
	}
	if c.rule == RuleCaps {
		f.Cap = c.excess(nil, int64(len(envs)))
	}
	since := func(e heldEnv) time.Time { return c.since(e.h, ofEnvironment, e.env.EID, e.env.Since) }
	lost := make(map[*held][]heldEnv)
	for left := int64(len(envs)); left > c.limit; left-- {
		first := slices.MinFunc(envs, func(a, b heldEnv) int {
			return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(has[b.owner], has[a.owner]), since(b).Compare(since(a)),
				b.env.Creation.Compare(a.env.Creation), cmp.Compare(a.h.position, b.h.position),
				cmp.Compare(a.env.EID, b.env.EID))
		})
		envs = slices.DeleteFunc(envs, func(e heldEnv) bool { return e == first })
		has[first.owner]--
		lost[first.owner] = append(lost[first.owner], first)
	}
	for _, u := range c.people {
		c.add(u, f, lost[u], nil)
	}
}
