package local

import (
	"math/rand/v2"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// budgetOwner is who shares the limits of a search for device nodes. A container of root's is one, too: it
// may be anybody's.
type budgetOwner struct {
	uid       snapshot.UID
	container string
}

// nodeSearches are those of one look.
type nodeSearches map[budgetOwner]*proc.NodeSearch

func (n nodeSearches) of(a budgetOwner) *proc.NodeSearch {
	if n[a] == nil {
		n[a] = &proc.NodeSearch{Major: hardware.NodeMajor}
	}
	return n[a]
}

// prove finds out which processes have, or had, a node of the driver open or mapped. What the limits of an
// account leave out is not proved. Each look has another order, so that later ones reach it: also those of
// a program that remembers nothing. A process that can't be read within the limits isn't spared for that.
func (o *observer) prove(seen []observation) {
	searches := make(nodeSearches)
	for _, i := range rand.Perm(len(seen)) {
		p := &seen[i].process
		key := proc.Ancestor{PID: p.PID, Start: p.Start}
		if p.Start != 0 && !o.before.proved[key] {
			has, err := searches.of(accountOf(p)).Finds(o.fs, p.PID)
			p.NodeMissing = !has && err == nil
		}
		if !p.NodeMissing {
			o.after.proved[key] = true
		}
	}
	o.findHolders(seen, searches)
}

func accountOf(p *snapshot.Process) (a budgetOwner) {
	if p.UID != nil {
		a.uid = *p.UID
	}
	if a.uid == 0 {
		a.container = p.Container
	}
	return a
}

// findHolders finds, for each process that isn't proved, one of the same user that has a node open and that
// the driver doesn't list: it may be the one that computes.
func (o *observer) findHolders(seen []observation, searches nodeSearches) {
	listed, missing := make(map[snapshot.PID]bool), make(map[snapshot.UID][]*snapshot.Process)
	for i := range seen {
		p := &seen[i].process
		listed[p.PID] = true
		if a := accountOf(p); p.NodeMissing && a.uid != 0 { // root's daemons have nodes open
			missing[a.uid] = append(missing[a.uid], p)
		}
	}
	if len(missing) == 0 {
		return
	}
	pids, _ := o.fs.PIDs()
	for _, pid := range pids {
		uid, err := o.fs.FolderOwner(pid)
		if err != nil || listed[pid] || len(missing[uid]) == 0 {
			continue
		}
		if has, err := searches.of(budgetOwner{uid: uid}).FindsOpen(o.fs, pid); has && err == nil {
			for _, p := range missing[uid] {
				p.NodeHolder = pid
			}
			delete(missing, uid)
		}
	}
}
