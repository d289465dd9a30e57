// Package fairshare lets users who had less than an equal share of the last 30 days have more
// devices than their cap, while the fleet is free. It is pure.
//
//	memory := fairshare.Next(setting, usage, cluster, memory, now)
//	policy = memory.Policy(setting, policy)
//	rules = memory.Forget(before, rules)
//
// It only ever loosens a cap, and what isn't known loosens none. Whoever is light, and whether
// the fleet is free, changes back at another figure than it changed at, so that a boost doesn't come
// and go. When a boost ends, its devices are found like all that are over a cap, with the warning and the
// grace of the policy, which begin then.
package fairshare
