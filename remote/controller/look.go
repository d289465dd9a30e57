package controller

import (
	"context"

	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// Looker collects snapshots again and again, and judges nothing: for commands that only
// show what is there. It is not safe for concurrent use.
type Looker struct {
	Asker
	machines Machines
}

// Look is what a Looker saw.
type Look struct {
	Cluster snapshot.Cluster
	// Duplicates are the names that are left out of Cluster because another name leads to
	// the same machine.
	Duplicates []Duplicate
	// Via is how each host that answered was spoken with, where the Link knows.
	Via map[snapshot.Hostname]agent.Via
}

// Look asks every host once.
func (l *Looker) Look(ctx context.Context) Look {
	fleet := merge(&l.Asker, l.Collect(ctx), l.machines)
	l.machines = fleet.machines
	return Look{Cluster: fleet.cluster, Duplicates: fleet.duplicates, Via: fleet.via}
}
