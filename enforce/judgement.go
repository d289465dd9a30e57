package enforce

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/snapshot"
)

// judgement is a call of Judge: what it was given, and what it found so far.
type judgement struct {
	policy  Policy
	fleet   Fleet // of the policy
	before  Memory
	now     time.Time
	hosts   []*hostView         // that answered, in the order of the cluster
	missing []snapshot.Hostname // that did not

	next     Memory // starts with what is still valid of before
	findings []Finding
	keys     [][]string // in next.Present, of each finding
	notes    []Note
}

func newJudgement(policy Policy, cluster snapshot.Cluster, memory Memory, now time.Time) *judgement {
	j := &judgement{
		policy: policy, fleet: policy.Fleet(), now: now, before: memory, next: memory.next(now, len(cluster.Hosts)),
		hosts: make([]*hostView, 0, len(cluster.Hosts)), findings: make([]Finding, 0, len(memory.Findings)),
	}
	views := make([]hostView, 0, len(cluster.Hosts))
	for i := range cluster.Hosts {
		h := &cluster.Hosts[i]
		_, exempt := policy.Exempt(Subject{Host: h.Name})
		switch {
		case exempt: // whether it answered doesn't matter
		case h.Err != nil || h.Snapshot == nil:
			j.missing = append(j.missing, h.Name)
		default:
			views = append(views, hostView{j: j, name: h.Name, host: h, position: i})
			j.hosts = append(j.hosts, &views[len(views)-1])
		}
	}
	j.markUnderWay()
	j.nameReleased()
	return j
}

// markUnderWay adds to the drafts the orders that hosts are still carrying out.
func (j *judgement) markUnderWay() {
	if len(j.before.UnderWay) == 0 {
		return
	}
	byName := j.hostsByName()
	for i := range j.before.UnderWay {
		o := &j.before.UnderWay[i]
		if h := byName[o.Host]; h != nil {
			h.UnderWay.Add(&o.Order)
		}
	}
}

func (j *judgement) hostsByName() map[snapshot.Hostname]*hostView {
	byName := make(map[snapshot.Hostname]*hostView, len(j.hosts))
	for _, h := range j.hosts {
		byName[h.name] = h
	}
	return byName
}

// checkDue sets Since of a finding, and reports whether it is time to act on it. Each of the keys, at least one,
// names what must be there without a break: a process; or user, host and device, so that restarting a process
// does not reset the time. The oldest key counts. The caller adds the finding next.
func (j *judgement) checkDue(f *Finding, warn Warn, keys ...string) (due bool) {
	j.keys = append(j.keys, keys)
	oldest := j.countPresence(keys[0])
	for _, key := range keys[1:] {
		if other := j.countPresence(key); other.Since.Before(oldest.Since) {
			oldest = other
		}
	}
	due, at := oldest.due(warn, j.now)
	f.Since, f.Cycles = oldest.Since, oldest.Cycles
	if !due {
		f.Pending, f.Due = true, at
	}
	return due
}

// checkSooner is checkDue with more keys, after it, that have another warning: what is due first counts.
func (j *judgement) checkSooner(f *Finding, warn Warn, keys ...string) (due bool) {
	var other Finding
	due = j.checkDue(&other, warn, keys...)
	n := len(j.keys) - 1
	j.keys[n-1], j.keys = append(j.keys[n-1], keys...), j.keys[:n]
	switch {
	case due:
		f.Pending, f.Due = false, time.Time{}
	case other.Due.After(j.now) && other.Due.Before(f.Due):
		f.Due = other.Due
	}
	return due
}

// dueAt is when a finding with only one key will be due at the earliest, before checkDue; zero if it is. What is
// named in its warning must not end by then for another reason.
func (j *judgement) dueAt(warn Warn, key string) time.Time {
	p, counted := j.next.Present[key]
	if !counted {
		p = j.presence(key)
	}
	due, at := p.due(warn, j.now)
	switch {
	case due:
		return time.Time{}
	case at.Before(j.now):
		return j.now
	}
	return at
}

// countPresence counts a key of a finding once in this cycle, and returns how long it has been there.
func (j *judgement) countPresence(key string) Presence {
	p, counted := j.next.Present[key]
	if !counted {
		p = j.presence(key)
		j.next.Present[key] = p
	}
	return p
}

// presence is what countPresence counts for a key that was not counted in this cycle.
func (j *judgement) presence(key string) Presence {
	p := j.before.Present[key]
	if p.Cycles == 0 {
		p.Since = j.now
	}
	if p.Cycles == 0 || !j.before.Observer {
		p.Cycles++
	}
	return p
}

func (j *judgement) add(f Finding) { j.findings = append(j.findings, f) }

// maxNotes is how many notes there are about one host: a host that makes things up must not fill the screen.
const maxNotes = 256

func (j *judgement) note(h *hostView, format string, args ...any) {
	switch h.notes++; {
	case h.notes <= maxNotes:
		j.notes = append(j.notes, Note{Host: h.name, Text: fmt.Sprintf(format, args...)})
	case h.notes == maxNotes+1:
		j.notes = append(j.notes, Note{Host: h.name, Text: "and there is more that could not be judged"})
	}
}

// end adds a process to those that a finding terminates and, if the finding is due, to the host's order. A process
// that earlier attempts could not end is listed as stuck instead.
func (j *judgement) end(f *Finding, due bool, h *hostView, p *snapshot.Process) {
	ref := ProcessRef{h.name, p.PID}
	if h.UnderWay.Ends(p) {
		f.UnderWay++
		return
	}
	if reason, stuck := h.stuckBecause(p); stuck {
		f.Stuck = append(f.Stuck, StuckProcess{ref, reason})
		return
	}
	f.Terminate = append(f.Terminate, ref)
	switch {
	case due:
		h.Terminate(p, f.ID)
	case f.Waits == "":
		h.ExpectEnd(p.PID, f.Due)
	}
}

// loseDevice notes that an environment is to lose a device; if it is due, in the order as well.
func (j *judgement) loseDevice(f *Finding, due bool, h *hostView, env *envView, index snapshot.DeviceIndex) {
	if h.UnderWay.Detaches(index, env.env.EID) {
		f.UnderWay++
		return
	}
	f.Detach = append(f.Detach, DeviceRef{h.name, index, env.env.EID})
	switch {
	case due:
		h.Detach(index, env.env, h.use(env, index) == contents.Unused, f.ID)
	case f.Waits == "":
		h.ExpectDetach(index, env.env.EID, f.Due)
	}
}
