package controller

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/fairshare"
	"github.com/seed-3119e985/genv/snapshot"
)

// FairShare is how users who had less than an equal share may have more devices. The zero
// FairShare is off.
type FairShare struct {
	fairshare.Setting
	// Usage is what is known of the last days. It must not wait for anything; nil for unknown.
	Usage func() fairshare.Usage
}

// share decides who may have more devices than the cap. It returns the policy with that, and the
// memory of the rules by which to judge.
func (c *Controller) share(cycle *Cycle, now time.Time) (fairshare.Memory, enforce.Policy, enforce.Memory) {
	var usage fairshare.Usage
	if c.FairShare.Boost > 0 && c.FairShare.Usage != nil {
		usage = c.FairShare.Usage()
	}
	next := fairshare.Next(c.FairShare.Setting, usage, cycle.Cluster, c.Memory.FairShare, now)
	if users := next.Boosted(); len(users) > 0 {
		cycle.Boosts = make(map[snapshot.Username]int, len(users))
		for _, user := range users {
			cycle.Boosts[user] = c.FairShare.Boost
		}
	}
	return next, next.Policy(c.FairShare.Setting, c.Policy), next.Forget(c.Memory.FairShare, c.Memory.Rules)
}

// noteFairShare notes that the fleet is free, and says when that begins and ends.
func (c *Controller) noteFairShare(cycle *Cycle, next fairshare.Memory) (events []enforce.Event) {
	text := fmt.Sprintf("fair share: the fleet is free, so users under an equal share may have up to %d more than max-devices-per-user", c.FairShare.Boost)
	if next.Free {
		cycle.Plan.Notes = append(cycle.Plan.Notes, enforce.Note{Text: text})
	}
	switch {
	case next.Free == c.Memory.FairShare.Free:
		return nil
	case !next.Free:
		text = "fair share: the fleet is no longer free, so max-devices-per-user is what it is for everybody; what is over it is warned of first"
	}
	return []enforce.Event{{Kind: enforce.EventNote, Text: text}}
}
