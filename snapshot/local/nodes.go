package local

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// prove finds out which processes have, or had, a node of the driver. What is unreadable or over the quota isn't
// spared: only a finished search finds none. Those with few files come first, the others in any order.
func (o *observer) prove(seen []observation) {
	order, files := rand.Perm(len(seen)), make([]int64, len(seen))
	for i := range seen {
		files[i] = o.fs.OpenFiles(seen[i].process.PID)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(files[a], files[b]) })
	for _, i := range order {
		p := &seen[i].process
		key := proc.ID{PID: p.PID, Start: p.Start}
		has := o.before.proved[key]
		if p.Start != 0 && !has {
			var err error
			has, err = o.quotas.Of(accountOf(p)).HasNode(o.fs, p.PID, hardware.NodeMajor)
			p.NodeMissing = !has && err == nil
		}
		if has {
			o.after.proved[key] = true
		}
	}
	o.findHolders(seen)
}

// accountOf is for whom a process is read.
func accountOf(p *snapshot.Process) (a proc.Payer) {
	if p.UID != nil {
		a.UID = *p.UID
	}
	if a.UID == 0 {
		a.Container = p.Container
	}
	return a
}

// findHolders finds, for each process that isn't proved, one of the same user that has a node open and that
// the driver doesn't list: it may be the one that computes.
func (o *observer) findHolders(seen []observation) {
	listed, missing := make(map[snapshot.PID]bool), make(map[snapshot.UID][]*snapshot.Process)
	for i := range seen {
		p := &seen[i].process
		listed[p.PID] = true
		if a := accountOf(p); p.NodeMissing && a.UID != 0 { // root's daemons have nodes open
			missing[a.UID] = append(missing[a.UID], p)
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
		if has, err := o.quotas.Of(proc.Payer{UID: uid}).HasOpen(o.fs, pid, hardware.NodeMajor); has && err == nil {
			for _, p := range missing[uid] {
				p.NodeHolder = pid
			}
			delete(missing, uid)
		}
	}
}

// majorDRI is the major number of the nodes in /dev/dri (Documentation/admin-guide/devices.txt).
const majorDRI = 226

// mayDraw says whether a process may be one of a desktop: it has a node of /dev/dri open, or nvidia-smi says that
// another process of its account draws. True is also unknown.
func (o *observer) mayDraw(p *snapshot.Process, drawing map[snapshot.PID]snapshot.ProcessType) bool {
	for pid := range drawing {
		if uid, err := o.fs.UID(pid); err != nil || p.UID == nil || uid == *p.UID {
			return true
		}
	}
	has, err := o.quotas.Of(accountOf(p)).HasNode(o.fs, p.PID, majorDRI)
	return has || err != nil
}
