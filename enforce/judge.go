package enforce

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Judge judges a cluster by a policy at a moment. It returns the plan, the memory for
// the next cycle and what changed since the last one, and changes nothing: a caller
// for whom the cycle does not count keeps the memory that it has. The zero Memory
// judges this moment alone.
//
// All hosts are judged each time, most of them by a snapshot that was judged before. A rule of one host acts only on a
// snapshot that is new, or at most two seconds old. A rule of the fleet acts only if all snapshots that it counts are.
// Otherwise the finding waits, and Plan.Ask names the hosts to ask. Times of one host advance by Host.AskedAt.
//
// Hosts without a snapshot are skipped and don't count toward per-user caps.
func Judge(policy Policy, cluster snapshot.Cluster, memory Memory, now time.Time) (Plan, Memory, []Event) {
	return newJudgement(policy, cluster, memory, now).judge(cluster)
}

func (j *judgement) judge(cluster snapshot.Cluster) (Plan, Memory, []Event) {
	j.see()
	j.apply((*judgement).noteUnknowns)
	j.remember()
	// Each rule adds findings. What is due it puts into the drafts of the hosts' orders.
	for _, rule := range Rules() {
		if apply := ofHosts[rule]; apply != nil {
			j.apply(apply)
		}
	}
	result := judgeCaps(j)
	j.keepAbsent()

	plan := j.plan()
	plan.Counts, plan.ForWaits, plan.Uncounted = result.Counts, result.ForWaits, result.Uncounted
	j.holdBack(&plan) // what exceeds the safety limits
	events := j.events(&plan, cluster)
	return plan, j.next, events
}

// apply applies a rule to all hosts.
func (j *judgement) apply(rule func(*judgement, *hostView)) {
	for _, h := range j.hosts {
		rule(j, h)
	}
}

// ofHosts are the rules about one host alone. The others are caps.
var ofHosts = map[Rule]func(*judgement, *hostView){
	RuleNonEnvProcesses: (*judgement).nonEnvProcesses, RuleUnreadable: (*judgement).unreadable, RuleEnvDevices: (*judgement).envDevices,
	RuleMaxProcessAge: (*judgement).processAge, RuleEnvMemory: (*judgement).envMemory, RuleIdle: (*judgement).idle,
	RuleMaxDuration: (*judgement).maxDuration,
}

// noteUnknowns notes what is unknown about GPUs and processes, and false claims.
func (j *judgement) noteUnknowns(h *hostView) {
	unknown := 0
	for i := range h.snapshot.Devices {
		if h.snapshot.Devices[i].Unidentified {
			unknown++
		}
	}
	if unknown > 0 {
		j.note(h, "what is attached to %d of its %d GPUs is unknown, so no rule acts on them", unknown,
			len(h.snapshot.Devices))
	}
	for i := range h.snapshot.Processes {
		p := &h.snapshot.Processes[i]
		if p.NodeMissing {
			holder := "its PID may be one of another PID namespace"
			if p.NodeHolder != 0 {
				holder = fmt.Sprintf("process %d of the same user has one open, and the driver doesn't list it",
					p.NodeHolder)
			}
			j.note(h, "the driver lists process %d%s on GPU %s, but it has not been seen with a device of the "+
				"driver open, so it is left alone (unproved): %s",
				p.PID, p.Describe(), text.JoinIndices(p.Indices()), holder)
			continue
		}
		if h.in[i] == nil {
			if env := h.claimed(p); env != nil {
				j.note(h, "process %d%s claims environment %s, which belongs to uid %d: it counts as outside",
					p.PID, p.Describe(), text.Shown(string(p.EID)), env.env.UID)
			}
		}
		if !h.settings.JudgeGraphics && slices.ContainsFunc(p.Usage, h.snapshot.TypeUnknown) {
			j.note(h, "nvidia-smi has not said yet whether process %d%s draws on a screen, so it is left alone", p.PID,
				p.Describe())
		}
		if p.UserUnknown {
			j.note(h, "the user of process %d%s could not be looked up: if the policy exempts users by name, it is "+
				"left alone", p.PID, p.Describe())
		}
		if p.EnvUnknown && p.Unreadable == nil && !h.outsideByPolicy(p) {
			why := ""
			if p.EnvOverwritten {
				why = ": it has overwritten its environment variables (unknown-environment: leave)"
			}
			j.note(h, "the environment of process %d%s could not be read, so it is left alone%s", p.PID, p.Describe(),
				why)
		}
	}
}

// MaxOrdersUnderWay is how many orders a host may be carrying out: one that never
// answers must not take up the controller's memory. Hosts take no more themselves.
const MaxOrdersUnderWay = 16

// postpone drops the draft of a host, and has the findings wait.
func (j *judgement) postpone(h *hostView) {
	h.Drop()
	for i := range j.findings {
		if f := &j.findings[i]; !f.Pending && f.Affects() == h.name && len(f.Terminate)+len(f.Detach) > 0 {
			f.Pending, f.Waits = true, fmt.Sprintf("%d orders are under way on the host", MaxOrdersUnderWay)
		}
	}
}

// lines are those of the findings that are due, by their ids.
func (j *judgement) lines() map[string]string {
	lines := make(map[string]string, len(j.findings))
	for i := range j.findings {
		if f := &j.findings[i]; !f.Pending {
			lines[f.ID] = f.Line()
		}
	}
	return lines
}

// plan puts together what the rules found and drafted.
func (j *judgement) plan() Plan {
	for _, h := range j.hosts {
		if h.UnderWay.Orders >= MaxOrdersUnderWay {
			j.postpone(h)
		}
	}
	plan := Plan{
		Findings: j.findings, Notes: j.notes, TellUsers: j.fleet.TellUsers, ExemptDevices: j.exemptDevices,
	}
	if j.fleet.Limits.Paused == "" {
		plan.Ask = slices.Sorted(maps.Keys(j.ask))
	}
	lines := j.lines()
	for _, h := range j.hosts {
		o := h.Order(lines)
		if o.Empty() {
			continue
		}
		o.Name(h.snapshot.Devices)
		h.markCounted(&o)
		o.Options = h.settings.OrderOptions(j.fleet)
		plan.Orders = append(plan.Orders, order.OfHost{Host: h.name, Order: o})
	}
	return plan
}
