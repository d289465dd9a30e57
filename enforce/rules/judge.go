package rules

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/caps"
	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Judge judges a cluster by a policy at a time. It returns the plan, the next memory and what changed since the last
// judgement. It modifies no argument: if the judgement doesn't count, keep the old memory. The zero Memory judges this
// moment alone.
//
// Each call judges all hosts, most of them by a snapshot that was judged before. A rule of one host acts only on a
// snapshot that is fresh (enforce.FreshFor); a cap only if all snapshots that it counts are. Otherwise the
// finding is deferred, and Plan.Ask names the hosts to ask. Times of one host advance by Host.AskedAt.
//
// Hosts without a snapshot are skipped and don't count toward per-user caps.
func Judge(policy enforce.Policy, cluster snapshot.Cluster, memory enforce.Memory, now time.Time) (
	plan enforce.Plan, next enforce.Memory, events []enforce.Event,
) {
	j := judge{Judgement: judging.New(policy, cluster, memory, now)}
	counting := caps.New(j.Judgement)
	steps := []func(*judging.HostView){j.Fill, j.noteUnknowns, j.RememberUses}
	// Each rule adds findings, and adds due actions to the drafts of the hosts' orders.
	for _, rule := range hostRules {
		steps = append(steps, func(h *judging.HostView) { rule.apply(&j, h) })
	}
	j.eachHost(append(steps, counting.Count))
	counting.Judge()
	j.KeepAbsent()
	plan = j.plan()
	j.holdBack(&plan) // what exceeds the safety limits
	events = j.events(&plan, cluster)
	return plan, j.Next, events
}

type judge struct {
	*judging.Judgement
	found, notify []enforce.Event           // about findings, and about users to notify
	more          map[snapshot.Hostname]int // findings without an event, by host
}

// hostRule is a rule about one host alone. The others are in package caps.
type hostRule struct {
	rule  enforce.Rule
	apply func(*judge, *judging.HostView)
}

// hostRules are in the order of enforce.Rules.
var hostRules = slices.Concat(processRules, environmentRules)

// eachHost does all steps for one host before the next, while its snapshot is in the processor's cache. The results are
// in the order of the steps.
func (j *judge) eachHost(steps []func(*judging.HostView)) {
	findings, notes := make([][]enforce.Finding, len(steps)), make([][]enforce.Note, len(steps))
	last := len(steps) - 1
	findings[last], notes[last] = j.Findings, j.Notes // from New
	for _, h := range j.Hosts {
		for i, step := range steps {
			j.Findings, j.Notes = findings[i], notes[i]
			step(h)
			findings[i], notes[i] = j.Findings, j.Notes
		}
	}
	j.Findings = make([]enforce.Finding, 0, len(j.Before.Findings)) // about as many as before
	for _, list := range findings {
		j.Findings = append(j.Findings, list...)
	}
	j.Notes = slices.Concat(notes...)
}

func (j *judge) noteUnknowns(h *judging.HostView) {
	unknown := 0
	for i := range h.Snapshot.Devices {
		if h.Snapshot.Devices[i].Unidentified {
			unknown++
		}
	}
	if unknown > 0 {
		j.Note(h, "what is attached to %d of its %d GPUs is unknown, so no rule acts on them", unknown,
			len(h.Snapshot.Devices))
	}
	for i := range h.Snapshot.Processes {
		p := &h.Snapshot.Processes[i]
		if p.NodeMissing {
			holder := "its PID may be one of another PID namespace"
			if p.NodeHolder != 0 {
				holder = fmt.Sprintf("process %d of the same user has one open, and the driver doesn't list it",
					p.NodeHolder)
			}
			j.Note(h, "the driver lists process %d%s on GPU %s, but it has not been seen with a device of the "+
				"driver open, so it is left alone (unproved), and counted for nobody: %s",
				p.PID, p.Describe(), text.JoinIndices(p.Indices()), holder)
			continue
		}
		if h.Settings.CountOutside && p.StartedByUnknown() && len(p.Usage) > 0 && !h.Exempt[p.PID] {
			j.Note(h, "process %d%s on GPU %s is counted for nobody: who started its container is not proved", p.PID,
				p.Describe(), text.JoinIndices(p.Indices()))
		}
		if h.In[i] == nil {
			if env := h.Claimed(p); env != nil {
				j.Note(h, "process %d%s claims environment %s, which belongs to uid %d: it counts as outside",
					p.PID, p.Describe(), text.Shown(string(p.EID)), env.Env.UID)
			}
		}
		if !h.Settings.JudgeGraphics && slices.ContainsFunc(p.Usage, h.Snapshot.TypeUnknown) {
			j.Note(h, "nvidia-smi has not said yet whether process %d%s draws on a screen, so it is left alone", p.PID,
				p.Describe())
		}
		if p.UserUnknown {
			j.Note(h, "the user of process %d%s could not be looked up: if the policy exempts users by name, it is "+
				"left alone", p.PID, p.Describe())
		}
		if p.EnvUnknown && p.Unreadable == nil && !h.OutsideByPolicy(p) {
			why := ""
			if p.EnvOverwritten {
				why = ": it has overwritten its environment variables (unknown-environment: leave)"
			}
			j.Note(h, "the environment of process %d%s could not be read, so it is left alone%s", p.PID, p.Describe(),
				why)
		}
	}
}

func (j *judge) plan() enforce.Plan {
	for _, h := range j.Hosts {
		if h.UnderWay.Orders >= enforce.MaxOrdersUnderWay {
			j.postpone(h)
		}
	}
	plan := j.Plan
	if j.Fleet.Limits.Paused == "" {
		plan.Ask = slices.Sorted(maps.Keys(j.Ask))
	}
	lines := make(map[string]string, len(j.Findings))
	for i := range j.Findings {
		if f := &j.Findings[i]; !f.Pending {
			lines[f.ID] = f.Line()
		}
	}
	for _, h := range j.Hosts {
		o := h.Order(lines)
		if o.Empty() {
			continue
		}
		o.Name(h.Snapshot.Devices)
		h.MarkCounted(&o)
		o.Options = h.Settings.Order()
		o.Unprotected = j.Fleet.Unprotected
		plan.Orders = append(plan.Orders, order.OfHost{Host: h.Name, Order: o})
	}
	return plan
}

func (j *judge) postpone(h *judging.HostView) {
	h.Drop()
	for i := range j.Findings {
		if f := &j.Findings[i]; !f.Pending && f.Affects() == h.Name && len(f.Terminate)+len(f.Detach) > 0 {
			f.Pending, f.BlockedBy = true, fmt.Sprintf("%d orders are under way on the host", enforce.MaxOrdersUnderWay)
		}
	}
}
