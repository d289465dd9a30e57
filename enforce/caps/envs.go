package caps

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/judging"
)

// judgeEnvs takes environments beyond the cap: those without any device first, from which there is nothing to
// take, then those without a process, then the newest. The environments themselves stay: they are people's shells.
func (c *capOn) judgeEnvs() {
	envs := c.envs()
	if int64(len(envs)) <= c.limit {
		return
	}
	left := make(map[*held][]heldEnv) // of those who have some
	for _, e := range envs {
		left[e.owner] = append(left[e.owner], e)
	}
	f := enforce.Finding{
		Rule: c.rule, Count: &enforce.CountExcess{Used: len(envs), Limit: int(c.limit)},
		CountedOn: hostsOf(envs, func(e heldEnv) *judging.HostView { return e.h }),
	}
	if c.rule == enforce.RuleCaps {
		f.Cap = c.excess(nil, int64(len(envs)))
	}
	people := slices.DeleteFunc(slices.Clone(c.people), func(u *held) bool {
		slices.SortFunc(left[u], heldEnv.compare)
		return len(left[u]) == 0
	})
	lost := make(map[*held][]heldEnv)
	for range int64(len(envs)) - c.limit {
		u := slices.MinFunc(people, func(a, b *held) int {
			return cmp.Or(cmp.Compare(left[a][0].cost, left[b][0].cost), cmp.Compare(len(left[b]), len(left[a])),
				left[a][0].compare(left[b][0]))
		})
		lost[u], left[u] = append(lost[u], left[u][0]), left[u][1:]
		people = slices.DeleteFunc(people, func(u *held) bool { return len(left[u]) == 0 })
	}
	for _, u := range c.people {
		c.add(u, f, lost[u], nil)
	}
}

// compare says which of two environments goes first.
func (e heldEnv) compare(other heldEnv) int {
	return cmp.Or(cmp.Compare(e.cost, other.cost), other.since.Compare(e.since),
		other.Env.Creation.Compare(e.Env.Creation), cmp.Compare(e.h.Position, other.h.Position),
		cmp.Compare(e.Env.EID, other.Env.EID))
}

// envs are those that the people have of those that the cap is about.
func (c *capOn) envs() (list []heldEnv) {
	for _, u := range c.people {
		for _, e := range u.envs {
			if (c.host == nil || e.h == c.host) && (c.OnHost == nil || c.OnHost(e.h.Name, e.h.Labels)) {
				list = append(list, e)
			}
		}
	}
	return list
}
