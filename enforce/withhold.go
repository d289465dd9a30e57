package enforce

import (
	"cmp"
	"slices"
)

// apply takes the held actions out of the reports, and marks the findings that
// have no action left.
func (l *limiter) apply(plan *Plan) {
	ends, detaches := make(map[ProcessRef]*Held), make(map[DeviceRef]*Held)
	for _, a := range l.actions {
		switch {
		case a.held == nil:
		case a.detach:
			detaches[DeviceRef{a.host.name, a.device.device, a.device.eid}] = a.held
			a.held.Detachments++
		default:
			ends[ProcessRef{a.host.name, a.pid}] = a.held
			a.held.Terminations++
		}
	}
	slices.SortFunc(l.held, func(a, b *Held) int { return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Host, b.Host)) })
	for _, h := range l.held {
		switch {
		case h.Terminations+h.Detachments == 0:
		case h.User != "":
			plan.HeldUsers = append(plan.HeldUsers, *h)
		default:
			plan.HeldHosts = append(plan.HeldHosts, *h)
		}
	}
	if len(ends)+len(detaches) > 0 {
		plan.withhold(ends, detaches)
	}
}

// withhold takes actions out of a plan.
func (plan *Plan) withhold(ends map[ProcessRef]*Held, detaches map[DeviceRef]*Held) {
	for i := range plan.Reports {
		host, r := plan.Reports[i].Host, &plan.Reports[i].Report
		r.Terminate = slices.DeleteFunc(r.Terminate, func(t Termination) bool { return ends[ProcessRef{host, t.Process.PID}] != nil })
		r.Detach = slices.DeleteFunc(r.Detach, func(d Detachment) bool { return detaches[DeviceRef{host, d.Device, d.Environment.EID}] != nil })
	}
	plan.Reports = slices.DeleteFunc(plan.Reports, func(r HostReport) bool { return r.Report.Empty() })
	for i := range plan.Findings {
		if f := &plan.Findings[i]; !f.Pending {
			f.withhold(ends, detaches)
		}
	}
}

// withhold takes held actions out of a finding. If no other action is left, the
// finding keeps them and waits.
func (f *Finding) withhold(ends map[ProcessRef]*Held, detaches map[DeviceRef]*Held) {
	terminate, held := split(f.Terminate, ends)
	detach, heldToo := split(f.Detach, detaches)
	switch held = cmp.Or(heldToo, held); {
	case held == nil:
	case len(terminate)+len(detach) > 0:
		f.Terminate, f.Detach = terminate, detach
	default:
		f.Pending, f.Held, f.Waits = true, true, "safety limit exceeded: "+held.Because
	}
}

// split returns the items that are not held, and the reason why the last of the
// others is; nil for none.
func split[T comparable](items []T, held map[T]*Held) (rest []T, because *Held) {
	for _, item := range items {
		if h := held[item]; h != nil {
			because = h
		} else {
			rest = append(rest, item)
		}
	}
	return rest, because
}
