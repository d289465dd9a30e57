package controller

import (
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// planGuards decides what the kernel guards are asked. Events wait in unsaid.
func (c *Controller) planGuards(cycle *Cycle, policy enforce.Policy, now time.Time) {
	fleet := guardFleet{Cluster: cycle.Cluster, Answered: cycle.answered, About: c.Link.About}
	asks, events := c.guards.Plan(policy, fleet, c.Memory.Guards, guardOptionsOf(c.Self, c.run, c.interval, c.DryRun, now))
	cycle.guards, c.unsaid = asks, append(c.unsaid, events...)
}

// withGuards adds what guards are asked to the visits.
func withGuards(visits map[snapshot.Hostname]*visit, asks []*guardAsk) {
	for _, a := range asks {
		name, host := a.Host()
		if visits[name] == nil {
			visits[name] = &visit{name: name, host: host}
		}
		visits[name].guard = a
	}
}
