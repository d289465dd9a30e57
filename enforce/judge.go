package enforce

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Judge judges a cluster by a policy at a moment. It returns the plan, the memory for
// the next cycle and what changed since the last one, and changes nothing: a caller
// for whom the cycle does not count keeps the memory that it has. The zero Memory
// judges this moment alone.
//
// Hosts without a snapshot are skipped and don't count toward per-user caps. The
// rules run in a fixed order over all hosts, since the later ones take into account
// what the earlier ones end anyway.
func Judge(policy Policy, cluster snapshot.Cluster, memory Memory, now time.Time) (Plan, Memory, []Event) {
	e := newJudgement(policy, cluster, memory, now)
	e.forgetEnded()
	e.onEachHost(e.adoptReleased)
	e.onEachHost(e.noteUnknowns)

	e.onEachHost(e.nonEnvProcesses)
	e.onEachHost(e.envDevices)
	e.onEachHost(e.envMemory) // what ends because of the rules above frees memory
	e.watchIdle()
	e.onEachHost(e.idleDevices)
	e.onEachHost(e.maxDuration)
	e.caps() // devices that the rules above take don't count

	plan := e.plan()
	e.limit(&plan)
	events := e.announce(&plan, cluster)
	return plan, e.next, events
}

// judgement is the state of one Judge.
type judgement struct {
	policy       Policy
	fleet        Fleet
	now          time.Time
	before, next Memory // of the last cycle, and of this one in the making
	hosts        []*hostView
	missing      []snapshot.Hostname
	findings     []Finding
	notes        []Note
}

func newJudgement(policy Policy, cluster snapshot.Cluster, memory Memory, now time.Time) *judgement {
	e := &judgement{policy: policy, fleet: policy.Fleet(), now: now, before: memory, next: memory.next(now)}
	for i := range cluster.Hosts {
		h := &cluster.Hosts[i]
		_, exempt := policy.Exempt(Subject{Host: h.Name})
		switch {
		case exempt: // whether it answered doesn't matter
		case h.Err != nil || h.Snapshot == nil:
			e.missing = append(e.missing, h.Name)
		default:
			view := newHostView(h, policy, &e.fleet, now)
			view.order = i
			e.hosts = append(e.hosts, view)
		}
	}
	e.markUnderWay()
	return e
}

// markUnderWay has the rules know what hosts are still carrying out.
func (e *judgement) markUnderWay() {
	if len(e.before.UnderWay) == 0 {
		return
	}
	byName := e.hostsByName()
	for i := range e.before.UnderWay {
		r := &e.before.UnderWay[i]
		if h := byName[r.Host]; h != nil {
			h.draft.underWay.add(&r.Report)
		}
	}
}

func (e *judgement) hostsByName() map[snapshot.Hostname]*hostView {
	byName := make(map[snapshot.Hostname]*hostView, len(e.hosts))
	for _, h := range e.hosts {
		byName[h.name] = h
	}
	return byName
}

func (e *judgement) onEachHost(rule func(*hostView)) {
	for _, h := range e.hosts {
		rule(h)
	}
}

// checkDue sets since when a finding is there, and reports whether it is time to act on
// it. The keys, at least one, identify what must be there without a break: user,
// host, environment, rule and device, so that restarting a process does not reset
// the time, or one process. The oldest key counts.
func (e *judgement) checkDue(f *Finding, warn Warn, keys ...string) (due bool) {
	oldest := e.countPresence(keys[0])
	for _, key := range keys[1:] {
		if other := e.countPresence(key); other.Since.Before(oldest.Since) {
			oldest = other
		}
	}
	due, at := oldest.due(warn, e.now)
	f.Since, f.Cycles = oldest.Since, oldest.Cycles
	if !due {
		f.Pending, f.Due = true, at
	}
	return due
}

func (e *judgement) add(f Finding) { e.findings = append(e.findings, f) }

// maxNotes is how many notes there are about one host: a host that makes things up
// must not fill the screen.
const maxNotes = 256

func (e *judgement) note(h *hostView, format string, args ...any) {
	switch h.notes++; {
	case h.notes <= maxNotes:
		e.notes = append(e.notes, Note{Host: h.name, Text: fmt.Sprintf(format, args...)})
	case h.notes == maxNotes+1:
		e.notes = append(e.notes, Note{Host: h.name, Text: "and there is more that could not be judged"})
	}
}

// noteUnknowns notes what is unknown about processes, and false claims.
func (e *judgement) noteUnknowns(h *hostView) {
	for i := range h.snapshot.Processes {
		p := &h.snapshot.Processes[i]
		if env := h.claimed(p); env != nil {
			e.note(h, "process %d%s claims environment %s, which belongs to uid %d: it counts as outside",
				p.PID, describe(p), text.Shown(string(p.EID)), env.env.UID)
		}
		if p.UserUnknown {
			e.note(h, "the user of process %d%s could not be looked up: if the policy exempts users by name, it is left alone", p.PID, describe(p))
		}
		if p.EnvUnknown && !h.outsideByPolicy(p) {
			e.note(h, "the environment of process %d%s could not be read, so it is left alone%s", p.PID, describe(p), overwritten(p))
		}
	}
}

// overwritten says why an environment is unknown, if its process did that.
func overwritten(p *snapshot.Process) string {
	if p.EnvOverwritten {
		return ": it has overwritten its environment variables (unknown-environment: leave)"
	}
	return ""
}

// maxReportsUnderWay is how many reports a host may be carrying out: one that never
// answers must not take up the controller's memory. Hosts take no more themselves.
const maxReportsUnderWay = 16

// postpone drops the draft of a host, and has the findings wait.
func (e *judgement) postpone(h *hostView) {
	h.draft.terminate, h.draft.detach = nil, nil
	for i := range e.findings {
		if f := &e.findings[i]; !f.Pending && f.affects() == h.name && len(f.Terminate)+len(f.Detach) > 0 {
			f.Pending, f.Waits = true, fmt.Sprintf("%d reports are under way on the host", maxReportsUnderWay)
		}
	}
}

// plan puts together what the rules found and drafted.
func (e *judgement) plan() Plan {
	for _, h := range e.hosts {
		if h.draft.underWay.reports >= maxReportsUnderWay {
			e.postpone(h)
		}
	}
	plan := Plan{Findings: e.findings, Notes: e.notes, TellUsers: e.fleet.TellUsers}
	lines := make(map[string]string)
	for i := range e.findings {
		if f := &e.findings[i]; !f.Pending {
			lines[f.ID] = f.Line()
		}
	}
	for _, h := range e.hosts {
		r := h.draft.report()
		if r.Empty() {
			continue
		}
		r.explain(lines)
		r.Grace, r.Kill, r.Unprotected = h.settings.Grace, h.settings.Kill, e.fleet.Unprotected
		plan.Reports = append(plan.Reports, HostReport{Host: h.name, Report: r})
	}
	return plan
}
