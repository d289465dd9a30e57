package enforce

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Evaluate judges a cluster by a policy at a moment. Hosts without a snapshot
// are not judged and lend nothing to anybody's count. The rules run in a fixed
// order over all hosts, since the later ones take into account what the
// earlier ones end anyway: non-env-processes, env-devices, env-memory, and the
// caps across hosts.
func Evaluate(policy Policy, cluster snapshot.Cluster, now time.Time) Plan {
	e := &evaluation{policy: policy, now: now}
	for i := range cluster.Hosts {
		h := &cluster.Hosts[i]
		if h.Err == nil && h.Snapshot != nil {
			e.hosts = append(e.hosts, newHostView(h))
		}
	}
	e.onEachHost(true, e.noteUnknowns)
	e.onEachHost(policy.NonEnvProcesses, e.nonEnvProcesses)
	e.onEachHost(policy.EnvDevices, e.envDevices)
	e.onEachHost(policy.EnvMemory, e.envMemory)
	e.maxDevices()
	return e.finish()
}

// evaluation is the state of one Evaluate.
type evaluation struct {
	policy   Policy
	now      time.Time
	hosts    []*hostView
	findings []Finding
	notes    []Note
}

// onEachHost runs a rule over all hosts, when the policy has it.
func (e *evaluation) onEachHost(on bool, rule func(*hostView)) {
	if !on {
		return
	}
	for _, h := range e.hosts {
		rule(h)
	}
}

func (e *evaluation) find(f Finding) { e.findings = append(e.findings, f) }

func (e *evaluation) note(h *hostView, format string, args ...any) {
	e.notes = append(e.notes, Note{Host: h.name, Text: fmt.Sprintf(format, args...)})
}

// noteUnknowns tells of processes that no rule may touch.
func (e *evaluation) noteUnknowns(h *hostView) {
	for i := range h.snapshot.Processes {
		if p := &h.snapshot.Processes[i]; p.EnvUnknown {
			e.note(h, "the environment of process %d could not be read, so it is left alone", p.PID)
		}
	}
}

func (e *evaluation) finish() Plan {
	plan := Plan{Findings: e.findings, Notes: e.notes}
	for _, h := range e.hosts {
		if r := h.draft.report(); !r.Empty() {
			plan.Reports = append(plan.Reports, HostReport{Host: h.name, Report: r})
		}
	}
	return plan
}
