package holdings

import (
	"cmp"
	"slices"
)

// devicesInstead are devices that go instead of some that were given back, since the user is over a cap
// by an amount still: who attached another one for each that is to go would lose nothing otherwise. Of
// memory, no busy one goes: what its environments may use is only a claim; see busyOver.
func devicesInstead(c Cap, gone []Take, others []*candidate, over int64) []*candidate {
	var queue []*candidate
	for _, d := range others {
		if d.setCost(); d.takeable() && !(c == Memory && d.busy()) {
			queue = append(queue, d)
		}
	}
	slices.SortFunc(queue, (*candidate).compare)
	return instead(gone, queue, over, func(d *candidate) (cost int8, weight int64) { return d.cost, d.weight(c) })
}

// envsInstead is devicesInstead for environments.
func (r *Remaining) envsInstead(gone []Take, others []*Env, over int64) []*Env {
	slices.SortFunc(others, func(a, b *Env) int {
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), b.Created.Compare(a.Created), r.shard.Hosts[a.Host].compare(&r.shard.Hosts[b.Host]), cmp.Compare(a.EID, b.EID))
	})
	return instead(gone, others, over, func(env *Env) (cost int8, weight int64) { return env.Cost, 1 })
}

// instead takes at most one of a queue, in which the cheapest come first, for each that is gone, until
// the user isn't over the cap. None costs the user more than that for which it goes.
func instead[T any](gone []Take, queue []T, over int64, of func(T) (cost int8, weight int64)) (taken []T) {
	for _, take := range gone {
		if over <= 0 || len(queue) == 0 {
			break
		}
		if cost, weight := of(queue[0]); cost <= take.Cost {
			taken, queue, over = append(taken, queue[0]), queue[1:], over-weight
		}
	}
	return taken
}
