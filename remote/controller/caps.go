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
func (c *Controller) judge(policy enforce.Policy, cluster snapshot.Cluster, memory enforce.Memory, now time.Time) *Judged {
	j := &Judged{Hosts: cluster.Hosts, Now: now, Before: memory}
	if c.Caps == nil {
		j.Plan, j.After, j.Events = enforce.Judge(policy, cluster, memory, now)
		return j
	}
	shard := c.Caps.Shard()
	var held *holdings.Shard
	j.Plan, j.After, j.Events, held = enforce.JudgeShard(policy, cluster, memory, now, shard)
	c.Caps.Publish(held)
	j.Shard = &shard
	return j
}
