package controller

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

// Judged is what was judged, full or early, and what came of it: enough to judge it again. None of
// it may be changed.
type Judged struct {
	Run           string
	Number, Early int
	Hosts         []snapshot.Host // that were judged: all, or those that were asked between two full cycles
	Now           time.Time
	DryRun        bool
	Operator      operator.State
	Boosts        map[snapshot.Username]int // of devices, beyond the caps of the policy
	Before, After enforce.Memory
	Plan          enforce.Plan
	Events        []enforce.Event
}

// Witness gets what is judged, also in cycles that don't count. It must not wait for anything slow.
type Witness interface {
	Judged(*Judged)
}

// judged tells the Witness.
func (c *Controller) judged(cycle *Cycle, j *Judged) {
	if c.Witness == nil {
		return
	}
	j.Run, j.Number, j.Early = cycle.Run, cycle.Number, cycle.Early
	j.DryRun, j.Operator, j.Boosts = cycle.DryRun, c.Memory.Operator, cycle.Boosts
	j.Plan.Reports = slices.Clone(j.Plan.Reports) // those that are sent get an ID
	c.Witness.Judged(j)
}
