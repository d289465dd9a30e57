package rules

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// holdBack removes actions that the safety limits hold back, and marks findings without other actions.
func (j *judge) holdBack(plan *enforce.Plan) {
	limits := j.Fleet.Limits
	if len(plan.Orders) == 0 || limits == (safety.Limits{}) {
		return
	}
	actions := safety.Items(plan.Orders, j.sinceOf(plan),
		func(host snapshot.Hostname, t *order.Termination) snapshot.Username {
			return j.ByName[host].TargetOf(&t.Process)
		})
	for _, held := range safety.Hold(limits, actions) {
		if held.User != "" {
			plan.HeldUsers = append(plan.HeldUsers, held)
		} else {
			plan.HeldHosts = append(plan.HeldHosts, held)
		}
	}
	allowed := slices.DeleteFunc(slices.Clone(actions), func(a *safety.Item) bool { return a.Held != nil })
	for _, a := range j.Next.Tally.Allow(limits, allowed) {
		a.Held = &safety.Held{UntilTick: true}
	}
	held := make(heldBack)
	for _, a := range actions {
		if a.Held != nil {
			held[item{enforce.DeviceRef{Host: a.Host, Index: a.Device, EID: a.EID}, a.PID}] = a.Held
		}
	}
	if len(held) > 0 {
		held.dropFrom(plan)
	}
}

// sinceOf is when findings began, by ID: for a process its own time, not that of its user's processes.
func (j *judge) sinceOf(plan *enforce.Plan) map[string]time.Time {
	since := make(map[string]time.Time, len(plan.Findings))
	for i := range plan.Findings {
		f := &plan.Findings[i]
		since[f.ID] = f.Since
		if p, own := j.Next.Present["process/"+strings.TrimPrefix(f.ID, string(f.Rule)+"/")]; own {
			since[f.ID] = p.Since
		}
	}
	return since
}

// item is a detachment or, with a PID, the end of a process.
type item struct {
	enforce.DeviceRef
	PID snapshot.PID
}

type heldBack map[item]*safety.Held

func (held heldBack) end(p enforce.ProcessRef) *safety.Held {
	return held[item{enforce.DeviceRef{Host: p.Host}, p.PID}]
}

func (held heldBack) detach(d enforce.DeviceRef) *safety.Held { return held[item{d, 0}] }

func (held heldBack) dropFrom(plan *enforce.Plan) {
	for i := range plan.Orders {
		host, o := plan.Orders[i].Host, &plan.Orders[i].Order
		o.Terminate = slices.DeleteFunc(o.Terminate, func(t order.Termination) bool {
			return held.end(enforce.ProcessRef{Host: host, PID: t.Process.PID}) != nil
		})
		o.Detach = slices.DeleteFunc(o.Detach, func(d order.Detachment) bool {
			return held.detach(enforce.DeviceRef{Host: host, Index: d.Device, EID: d.Environment.EID}) != nil
		})
	}
	plan.Orders = slices.DeleteFunc(plan.Orders, func(o order.OfHost) bool { return o.Order.Empty() })
	for i := range plan.Findings {
		if f := &plan.Findings[i]; !f.Pending {
			held.mark(f)
		}
	}
}

// mark removes held actions from a finding. If no other action is left, the finding keeps them and is pending.
func (held heldBack) mark(f *enforce.Finding) {
	terminate, ending := split(f.Terminate, held.end)
	detach, detaching := split(f.Detach, held.detach)
	switch because := cmp.Or(detaching, ending); {
	case because == nil:
	case len(terminate)+len(detach) > 0:
		f.Terminate, f.Detach = terminate, detach
	case because.UntilTick:
		f.Pending, f.Deferred = true, true
	default:
		f.Pending, f.Held, f.BlockedBy = true, true, because.Reason()
	}
}

// split returns the items that aren't held, and why the last of the others is; nil for none.
func split[T any](items []T, held func(T) *safety.Held) (rest []T, because *safety.Held) {
	for _, item := range items {
		if h := held(item); h != nil {
			because = h
		} else {
			rest = append(rest, item)
		}
	}
	return rest, because
}
