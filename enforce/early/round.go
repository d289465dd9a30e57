package early

import (
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// Round is what came of judging the hosts that were asked.
type Round struct {
	Plan   enforce.Plan
	Memory enforce.Memory
	Events []enforce.Event
	// Judged are the hosts that were judged. The others are left to the next full cycle, since
	// what would follow is more than the safety limits allow.
	Judged map[snapshot.Hostname]bool
}

// All judges hosts that were asked: together, or if that is more than the limits allow, one by
// one. The cluster is that of the last full cycle, with the new snapshots of these hosts.
func All(policy enforce.Policy, asked []snapshot.Host, cluster *snapshot.Cluster, memory enforce.Memory, spent *Spent, now time.Time) Round {
	limits := policy.Fleet().Limits
	all := Round{Memory: memory, Judged: make(map[snapshot.Hostname]bool)}
	try := func(hosts []snapshot.Host) bool {
		plan, memory, events := Judge(policy, snapshot.Cluster{Hosts: hosts}, all.Memory, now)
		if !spent.Allow(limits, &plan, events, cluster) {
			return false
		}
		all.Memory, all.Events = memory, append(all.Events, events...)
		all.Plan.Findings, all.Plan.Reports = append(all.Plan.Findings, plan.Findings...), append(all.Plan.Reports, plan.Reports...)
		for i := range hosts {
			all.Judged[hosts[i].Name] = true
		}
		return true
	}
	if len(asked) == 0 || try(asked) || len(asked) == 1 {
		return all
	}
	for i := range asked {
		try(asked[i : i+1])
	}
	return all
}
