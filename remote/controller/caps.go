package controller

import (
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/snapshot"
)

// Caps has the caps of users applied where other controllers judge other hosts; see
// remote/caps. Its methods don't wait.
type Caps interface {
	// Shard is what was decided, for the cycle that begins.
	Shard() enforce.Shard
	// Publish tells the others what users hold.
	Publish(*holdings.Shard)
}

// judge judges all hosts, or those of a shard.
func (c *Controller) judge(policy enforce.Policy, cluster snapshot.Cluster, memory enforce.Memory, now time.Time) (enforce.Plan, enforce.Memory, []enforce.Event) {
	if c.Caps == nil {
		return enforce.Judge(policy, cluster, memory, now)
	}
	plan, next, events, held := enforce.JudgeShard(policy, cluster, memory, now, c.Caps.Shard())
	c.Caps.Publish(held)
	return plan, next, events
}
