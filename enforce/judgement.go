package enforce

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// judgement is a call of Judge: what it was given, and what it found so far.
type judgement struct {
	policy  Policy
	fleet   Fleet // of the policy
	before  Memory
	now     time.Time
	hosts   []*hostView                     // that answered, in the order of the cluster
	missing []snapshot.Hostname             // that did not
	cluster []snapshot.Host                 // all, with their labels
	byName  map[snapshot.Hostname]*hostView // all hosts of the cluster; nil for those that did not answer
	// waiting are hosts that have not answered yet since this controller began, and didn't fail either.
	waiting  map[snapshot.Hostname]bool
	advances bool // it is the first look at a host of another round

	next     Memory // starts with what is still valid of before
	findings []Finding
	notes    []Note
	ask      map[snapshot.Hostname]bool // hosts to ask before something is done

	exemptDevices map[snapshot.Hostname][]snapshot.DeviceIndex
}

func newJudgement(policy Policy, cluster snapshot.Cluster, memory Memory, now time.Time) *judgement {
	j := &judgement{
		policy: policy, fleet: policy.Fleet(), cluster: cluster.Hosts, now: now, before: memory, next: memory.next(now, len(cluster.Hosts)),
		hosts: make([]*hostView, 0, len(cluster.Hosts)), findings: make([]Finding, 0, len(memory.Findings)),
		waiting: make(map[snapshot.Hostname]bool), ask: make(map[snapshot.Hostname]bool),
		byName: make(map[snapshot.Hostname]*hostView, len(cluster.Hosts)),
	}
	j.exemptDevices = make(map[snapshot.Hostname][]snapshot.DeviceIndex)
	views := make([]hostView, 0, len(cluster.Hosts))
	for i := range cluster.Hosts {
		h := &cluster.Hosts[i]
		j.byName[h.Name] = nil
		_, exempt := policy.Exempt(Subject{Host: h.Name})
		switch {
		case exempt: // whether it answered doesn't matter
		case h.Err == nil && h.Snapshot == nil:
			j.waiting[h.Name] = true
		case h.Err != nil:
			j.missing = append(j.missing, h.Name)
		default:
			views = append(views, hostView{j: j, name: h.Name, host: h, position: i})
			view := &views[len(views)-1]
			view.setTime(memory.Hosts[h.Name], now)
			j.advances = j.advances || view.advances
			j.next.Round = max(j.next.Round, h.Round)
			j.hosts = append(j.hosts, view)
			j.byName[h.Name] = view
		}
	}
	if j.advances {
		j.next.Interval = safety.Interval{}
	}
	j.next.Interval = j.next.Interval.Clone()
	j.keepExemptGPUs()
	j.markUnderWay()
	j.nameReleased()
	return j
}

// FreshFor is how old a look may be on which something is done.
const FreshFor = 2 * time.Second

// setTime sets when the host was asked, and for how long it didn't answer before. A look is fresh in the first cycle
// that judges it, and for FreshFor, unless it was asked for before the outcome of an order came.
func (h *hostView) setTime(known KnownHost, now time.Time) {
	h.at, h.advances = h.host.AskedAt, h.host.Round == 0 || h.host.Round != known.Round
	if h.at.IsZero() {
		h.at = now
	}
	if !known.LostAt.IsZero() {
		h.silence = max(0, h.at.Sub(known.LostAt))
	}
	h.isNew = h.host.AskedAt.IsZero() || h.host.IsNew
	h.acted = !known.Acted.IsZero() && !h.at.After(known.Acted)
	h.fresh = (h.isNew || now.Sub(h.at) <= FreshFor) && !h.acted
}

// markUnderWay adds to the drafts the orders that hosts are still carrying out, and those that ended after the look.
func (j *judgement) markUnderWay() {
	for i := range j.before.Ended {
		o := &j.before.Ended[i]
		h, inFleet := j.byName[o.Host]
		if inFleet && (h == nil || h.acted) {
			j.next.Ended = append(j.next.Ended, *o)
		}
		if h != nil && h.acted {
			h.UnderWay.Add(&o.Order)
			h.UnderWay.Orders--
		}
	}
	for i := range j.before.UnderWay {
		o := &j.before.UnderWay[i]
		if h := j.byName[o.Host]; h != nil {
			h.UnderWay.Add(&o.Order)
		}
	}
}

// clock is a warning, with at least one key that measures it. A key names what must be there without a break: a
// process; or user, host and device. The key that was there longest counts, so restarting a process doesn't reset the
// time.
type clock struct {
	warn Warn
	keys []string
}

// checkDue sets Since of a finding, and reports whether it is time to act on it: whether one of the clocks is over at
// the time of the host's snapshot. If one is over by now, but the snapshot is old, the finding is Deferred. The host is
// nil for a finding about several. The caller adds the finding next.
func (j *judgement) checkDue(h *hostView, f *Finding, clocks ...clock) (due bool) {
	over := false // by now, and not only by the host's snapshot
	for i, c := range clocks {
		oldest := j.countPresence(h, f, c.warn, c.keys[0])
		for _, key := range c.keys[1:] {
			if other := j.countPresence(h, f, c.warn, key); other.Since.Before(oldest.Since) {
				oldest = other
			}
		}
		isDue, at := oldest.due(c.warn, j.at(h))
		isOver, _ := oldest.due(c.warn, j.now)
		due, over = due || isDue, over || isOver
		if i == 0 {
			f.Since, f.Cycles, f.Due = oldest.Since, oldest.Cycles, at
		} else if at.After(j.now) && at.Before(f.Due) {
			f.Due = at
		}
	}
	f.Deferred = over && (!due || h != nil && !h.fresh)
	if due = due && !f.Deferred; due {
		f.Due = time.Time{}
	}
	f.Pending = !due
	return due
}

// at is the moment of a host's snapshot; for what is about several hosts, now.
func (j *judgement) at(h *hostView) time.Time {
	if h == nil {
		return j.now
	}
	return h.at
}

// dueAt is the earliest time at which a finding with these keys is due; zero if it is due now. It is asked before
// checkDue: rules leave out of a warning what ends before that time anyway.
func (j *judgement) dueAt(h *hostView, warn Warn, keys []string) time.Time {
	oldest := j.presence(h, keys[0])
	for _, key := range keys[1:] {
		if other := j.presence(h, key); other.Since.Before(oldest.Since) {
			oldest = other
		}
	}
	due, at := oldest.due(warn, j.at(h))
	if due {
		return time.Time{}
	}
	return later(at, j.now)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// countPresence counts a key of a finding once in this cycle, and returns how long it has been there.
func (j *judgement) countPresence(h *hostView, f *Finding, warn Warn, key string) Presence {
	p := j.presence(h, key)
	p.Warn, p.On = warn, f.CountedOn
	j.next.Present[key] = p
	return p
}

// presence is what countPresence counts.
func (j *judgement) presence(h *hostView, key string) Presence {
	if p, counted := j.next.Present[key]; counted {
		return p
	}
	p, advances := j.remembered(h, key)
	if p.isOver(j.at(h)) {
		p = Presence{}
	}
	if h != nil {
		p.Host = h.name
	}
	if p.Since.IsZero() {
		p.Since = j.at(h)
	}
	if advances { // else it counts from the next tick on
		p.Cycles++
	}
	p.Gone, p.Missed = time.Time{}, 0
	return p
}

// remembered is a presence as it was, later by the time for which its host didn't answer, and whether this look is of
// another round. What is on several hosts may have been there all the time: then it isn't later.
func (j *judgement) remembered(h *hostView, key string) (p Presence, advances bool) {
	p = j.before.Present[key]
	silence, advances := time.Duration(0), j.advances
	if h != nil {
		silence, advances = h.silence, h.advances
	}
	for _, name := range p.On {
		if on := j.byName[name]; on != nil && !p.Gone.IsZero() {
			silence = max(silence, on.silence)
		}
	}
	if silence > 0 && !p.Since.IsZero() {
		p.Since = p.Since.Add(silence)
	}
	if silence > 0 && !p.Gone.IsZero() {
		p.Gone = p.Gone.Add(silence)
	}
	return p, advances
}

// isOfProcess says whether a key is about one process. It goes with the process, of which there may be many: the key of
// its user keeps the time.
func isOfProcess(key string) bool {
	rule, rest, _ := strings.Cut(key, "/")
	parts := strings.Split(rest, "/")
	if len(parts) != 3 || !slices.Contains([]string{"process", string(RuleNonEnvProcesses), string(RuleEnvDevices)}, rule) {
		return false
	}
	_, err := strconv.ParseUint(parts[1]+parts[2], 10, 64)
	return err == nil
}

// keepAbsent keeps what is absent for less than an eighth of its warning, or may be on a host that doesn't answer.
func (j *judgement) keepAbsent() {
	silent := func(name snapshot.Hostname) bool {
		h, inFleet := j.byName[name]
		return inFleet && h == nil
	}
	for key, p := range j.before.Present {
		h := j.byName[p.Host]
		if _, counted := j.next.Present[key]; counted || h == nil && p.Host != "" && !silent(p.Host) {
			continue
		}
		if silent(p.Host) {
			j.next.Present[key] = p
			continue
		}
		if isOfProcess(key) {
			continue
		}
		p, advances := j.remembered(h, key)
		hidden := slices.ContainsFunc(p.On, silent)
		if p.Gone.IsZero() {
			p.Gone = j.at(h)
		}
		if advances && !hidden {
			p.Missed++
		}
		if p.AskedAgain = (time.Time{}); hidden || !p.isOver(j.at(h)) {
			j.next.Present[key] = p
		}
	}
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
	case due && f.Rule == RuleEnvDevices:
		h.Terminate(p, f.ID, f.Devices...)
	case due:
		h.Terminate(p, f.ID)
	case f.Waits == "":
		h.ExpectEnd(p.PID, f.Due)
	}
	j.askFirst(f, h)
}

// askFirst has a host asked on which something is due by an old look. What an order did there is left to show itself,
// or to the next tick: a process that was signalled may be saving its work.
func (j *judgement) askFirst(f *Finding, h *hostView) {
	if f.Deferred && f.Host != "" && !h.acted {
		j.ask[h.name] = true
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
	j.askFirst(f, h)
}
