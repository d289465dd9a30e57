package enforce

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// holdBack takes out of the plan what the safety limits hold back, and marks the findings
// that have no action left.
func (j *judgement) holdBack(plan *Plan) {
	limits := j.fleet.Limits
	if len(plan.Orders) == 0 || limits == (safety.Limits{}) {
		return
	}
	byName := j.hostsByName()
	actions := plan.actions(func(host snapshot.Hostname, t *order.Termination) snapshot.Username {
		return byName[host].targetOf(&t.Process)
	})
	if limits.Exceedable(plan.Orders) {
		for _, held := range safety.Hold(limits, actions) {
			if held.User != "" {
				plan.HeldUsers = append(plan.HeldUsers, held)
			} else {
				plan.HeldHosts = append(plan.HeldHosts, held)
			}
		}
	}
	allowed := slices.DeleteFunc(slices.Clone(actions), func(a *safety.Action) bool { return a.Held != nil })
	for _, a := range j.next.Interval.Allow(limits, allowed) {
		a.Held = &safety.Held{UntilTick: true}
	}
	ends, detaches := make(map[ProcessRef]*safety.Held), make(map[DeviceRef]*safety.Held)
	for _, a := range actions {
		switch {
		case a.Held == nil:
		case a.PID == 0:
			detaches[DeviceRef{a.Host, a.Device, a.EID}] = a.Held
		default:
			ends[ProcessRef{a.Host, a.PID}] = a.Held
		}
	}
	if len(ends)+len(detaches) > 0 {
		plan.holdBack(ends, detaches)
	}
}

// targetOf is the user against whom ending a process is directed: its own, or
// where the host doesn't report that, the user of its environment; "" in a container that
// counts for no user.
func (h *hostView) targetOf(p *snapshot.Process) snapshot.Username {
	if user := h.userOf(p); user != "" || p.Unproved() {
		return user
	}
	if env := h.environmentOf(p); env != nil {
		return env.env.Username
	}
	return ""
}

// actions are the items of all orders, with the users that they are directed against.
func (plan *Plan) actions(target func(snapshot.Hostname, *order.Termination) snapshot.Username) []*safety.Action {
	since := make(map[string]time.Time, len(plan.Findings))
	for i := range plan.Findings {
		since[plan.Findings[i].ID] = plan.Findings[i].Since
	}
	return safety.Actions(plan.Orders, since, target)
}

// holdBack takes actions out of a plan.
func (plan *Plan) holdBack(ends map[ProcessRef]*safety.Held, detaches map[DeviceRef]*safety.Held) {
	for i := range plan.Orders {
		host, o := plan.Orders[i].Host, &plan.Orders[i].Order
		o.Terminate = slices.DeleteFunc(o.Terminate, func(t order.Termination) bool { return ends[ProcessRef{host, t.Process.PID}] != nil })
		o.Detach = slices.DeleteFunc(o.Detach, func(d order.Detachment) bool { return detaches[DeviceRef{host, d.Device, d.Environment.EID}] != nil })
	}
	plan.Orders = slices.DeleteFunc(plan.Orders, func(o order.OfHost) bool { return o.Order.Empty() })
	for i := range plan.Findings {
		if f := &plan.Findings[i]; !f.Pending {
			f.holdBack(ends, detaches)
		}
	}
}

// holdBack takes held actions out of a finding. If no other action is left, the
// finding keeps them and waits.
func (f *Finding) holdBack(ends map[ProcessRef]*safety.Held, detaches map[DeviceRef]*safety.Held) {
	terminate, held := split(f.Terminate, ends)
	detach, heldToo := split(f.Detach, detaches)
	switch held = cmp.Or(heldToo, held); {
	case held == nil:
	case len(terminate)+len(detach) > 0:
		f.Terminate, f.Detach = terminate, detach
	case held.UntilTick:
		f.Pending, f.Deferred = true, true
	default:
		f.Pending, f.Held, f.Waits = true, true, held.Waits()
	}
}

// split returns the items that are not held, and the reason why the last of the
// others is; nil for none.
func split[T comparable](items []T, held map[T]*safety.Held) (rest []T, because *safety.Held) {
	for _, item := range items {
		if h := held[item]; h != nil {
			because = h
		} else {
			rest = append(rest, item)
		}
	}
	return rest, because
}
