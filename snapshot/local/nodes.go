package local

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// budgetOwner is who shares the limits of a search for device nodes. A container of root's is one, too: it
// may be any user's.
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

// prove finds out which processes have, or had, a node of the driver open or mapped. What can't be read, or
// what the limits of an account leave out, isn't spared for that: only a search that came to its end finds none.
// Processes with few files come first, and the others in another order at each look.
func (o *observer) prove(seen []observation) {
	order, files := rand.Perm(len(seen)), make([]int64, len(seen))
	for i := range seen {
		files[i] = o.fs.OpenFiles(seen[i].process.PID)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(files[a], files[b]) })
	searches := make(nodeSearches)
	for _, i := range order {
		p := &seen[i].process
		key := proc.Ancestor{PID: p.PID, Start: p.Start}
		has := o.before.proved[key]
		if p.Start != 0 && !has {
			var err error
			has, err = searches.of(accountOf(p)).Finds(o.fs, p.PID)
			p.NodeMissing = !has && err == nil
		}
		if has {
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
