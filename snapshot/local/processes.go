package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// observe reads the processes that use devices from /proc, except for what is in the cache. A Brief look, which can't
// say that processes are hidden, has an error then.
func (c *Collector) observe(ctx context.Context, usage nvidiasmi.Usage, devices *deviceList, before processCache,
) (*observer, []observation, []string, error) {
	used, warnings := usage.Processes(devices.index)
	if warning := devices.hiddenWarning(); warning != "" {
		warnings = slices.Insert(warnings, 0, warning)
	}
	if usage.Time.Late {
		warnings = append(warnings, slowWarning(usage.Time.Began))
	}
	o := &observer{
		fs: c.Proc, ancestors: c.Proc.NewAncestorFinder(), userNamespace: c.Proc.UserNamespace(), brief: c.Brief,
		now: c.now(), before: before, after: newProcessCache(), quotas: proc.Quotas{}, patience: accountsWithin,
	}
	read, errs := make([]observation, len(used)), make([]error, len(used))
	for _, i := range rand.Perm(len(used)) { // what the quotas of accounts leave out, a later look reaches
		read[i], errs[i] = o.observe(used[i].PID)
	}
	seen := make([]observation, 0, len(used))
	ended := startOf(usage.Time.Ended)
	for i, s := range read {
		u := &used[i]
		if errors.Is(errs[i], proc.ErrGone) || s.process.Start > ended {
			if _, known := before.details[u.PID]; !known && s.process.PID == 0 {
				o.unseen = append(o.unseen, *u)
			}
			continue // otherwise it has ended after nvidia-smi listed it
		}
		s.process.Usage, s.process.Instances = u.Usage, u.Instances
		seen = append(seen, s)
	}
	if c.hardware().Root && c.hardware().HasNodes() {
		o.prove(seen)
	}
	c.askAboutContainers(ctx, o, seen)
	if c.Brief && o.hidden != nil {
		return nil, nil, nil, fmt.Errorf("processes on GPUs are hidden from this user: %w", o.hidden)
	}
	return o, seen, warnings, nil
}

// startOf is the start time of a process that was started at a time; the highest one where either is unknown.
func startOf(at time.Time) snapshot.StartTime {
	now := proc.StartTimeNow()
	if at.IsZero() || now == 0 {
		return math.MaxUint64
	}
	return now - min(now, snapshot.StartTime(time.Since(at)/proc.Tick)) + 1
}

// slowWarning says how old the list of processes is. It changes twice a minute, so it isn't news in each cycle.
func slowWarning(at time.Time) string {
	const step = 30 * time.Second
	age := (time.Since(at) + step - 1).Truncate(step)
	return fmt.Sprintf("nvidia-smi is slow and has not answered in time: its list of processes is up to %s old", age)
}

const maxUnseen = 8

func (o *observer) unseenWarnings() (warnings []string) {
	for i := range o.unseen[:min(len(o.unseen), maxUnseen)] {
		p := &o.unseen[i]
		warnings = append(warnings, fmt.Sprintf("process %d, which the driver lists on GPU %s, can't be seen: it "+
			"has just ended, or is in another PID namespace, or hidepid hides it",
			p.PID, text.JoinIndices(p.Indices())))
	}
	return warnings
}

// askAboutContainers completes processes in containers. What is unknown is asked for again in the next snapshot.
func (c *Collector) askAboutContainers(ctx context.Context, o *observer, seen []observation) {
	if c.Containers == nil {
		return
	}
	var members []container.ContainedProcess
	var of []*observation
	for i := range seen {
		if s := &seen[i]; !s.asked && s.process.UID != nil {
			members, of = append(members, s.member), append(of, s)
		}
	}
	if len(members) == 0 {
		return
	}
	for i, info := range c.Containers(ctx, members) {
		of[i].process.ContainerInfo = info
		if d, ok := o.after.details[members[i].PID]; ok && (info == nil || !info.Unknown) {
			d.info, d.asked = info, true
			o.after.details[members[i].PID] = d
		}
	}
}

// prove finds out which processes have, or had, a node of the driver: only a finished search finds none. Those with few
// files come first, the others in any order.
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

// findHolders finds, for each process that isn't proved, one of the same user that has a node open and that the driver
// doesn't list: it may be the one that computes.
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

// mayDraw says whether a process may be one of a desktop: it has a node of /dev/dri open, or another process of its
// account draws. True is also unknown.
func (o *observer) mayDraw(p *snapshot.Process, drawing map[snapshot.PID]snapshot.ProcessType) bool {
	for pid := range drawing {
		if uid, err := o.fs.UID(pid); err != nil || p.UID == nil || uid == *p.UID {
			return true
		}
	}
	has, err := o.quotas.Of(accountOf(p)).HasNode(o.fs, p.PID, majorDRI)
	return has || err != nil
}
