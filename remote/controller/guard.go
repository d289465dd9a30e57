package controller

import (
	"cmp"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// planGuards decides what the kernel guards are asked. Events wait in pendingEvents.
func (c *Controller) planGuards(cycle *Cycle, policy enforce.Policy, now time.Time) {
	fleet := guardFleet{Cluster: cycle.Cluster, Answered: cycle.answered, About: c.Link.About}
	options := guardOptions{
		ID: cmp.Or(c.ID, c.run), By: cmp.Or(c.By, "genv remote enforce"), Interval: c.interval, DryRun: c.DryRun, Now: now,
	}
	asks, events := c.guards.Plan(policy, fleet, c.Memory.Guards, options)
	c.pendingEvents = append(c.pendingEvents, events...)
	cycle.guards, c.pendingEvents = asks, c.pendingEvents[max(0, len(c.pendingEvents)-maxPendingEvents):]
}

// maxPendingEvents is how many events wait for a cycle that can be recorded.
const maxPendingEvents = 256

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
