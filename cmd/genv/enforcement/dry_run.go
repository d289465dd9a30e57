package enforcement

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// intentions prints what a dry run leaves undone, when it is not what the last cycle did: what is due, then what waits
// for its time.
func (w *cycleWriter) intentions(cycle *controller.Cycle) {
	intended, due := make(map[string]bool), make(map[any]bool)
	say := func(host snapshot.Hostname, what, when string, why ...string) {
		key, line := on(host, what), what+when
		if when != "" {
			key += " later"
		}
		if len(why) > 0 {
			line += " because: " + strings.Join(why, "; ")
		}
		if !w.intended[key] && !intended[key] {
			w.print(host, line)
		}
		intended[key] = true
	}
	for _, o := range cycle.Plan.Orders {
		for _, d := range o.Order.Detach {
			say(o.Host, d.Intention(), "", d.Why...)
			due[enforce.DeviceRef{Host: o.Host, Index: d.Device, EID: d.Environment.EID}] = true
		}
		for _, t := range o.Order.Terminate {
			say(o.Host, t.Intention(), "", t.Why...)
			due[enforce.ProcessRef{Host: o.Host, PID: t.Process.PID}] = true
		}
	}
	hosts := make(map[snapshot.Hostname]*snapshot.Snapshot)
	for _, h := range cycle.Cluster.Answered() {
		hosts[h.Name] = h.Snapshot
	}
	for i := range cycle.Plan.Findings {
		f := &cycle.Plan.Findings[i]
		if !f.Pending || f.Held || f.Waits != "" {
			continue
		}
		when := whenDue(f, cycle.Start)
		for _, ref := range f.Detach {
			if s := hosts[ref.Host]; s != nil && s.Environment(ref.EID) != nil && !due[ref] {
				d := order.Detachment{Device: ref.Index, Environment: *s.Environment(ref.EID)}
				say(ref.Host, d.Intention(), when, f.Line())
			}
		}
		for _, ref := range f.Terminate {
			if s := hosts[ref.Host]; s != nil && !due[ref] {
				at := slices.IndexFunc(s.Processes, func(p snapshot.Process) bool { return p.PID == ref.PID })
				if outside := f.Rule == enforce.RuleNonEnvProcesses; at >= 0 {
					t := order.Termination{Process: s.Processes[at], InNoEnvironment: &outside}
					say(ref.Host, t.Intention(), when, f.Line())
				}
			}
		}
	}
	w.intended = intended
}

// whenDue says when something is done about a finding that waits.
func whenDue(f *enforce.Finding, now time.Time) string {
	if left := f.Due.Sub(now); left > 0 {
		return fmt.Sprintf(" in %s, if it lasts,", text.ShortDuration(max(left, time.Second)))
	}
	return " after more cycles, if it lasts,"
}

// wouldBeDone sums up what the findings of a dry run lead to, within safety limits. What waits for a warning counts.
func wouldBeDone(cycle *controller.Cycle) string {
	all, warned := newFound(), 0
	for i := range cycle.Plan.Findings {
		f := &cycle.Plan.Findings[i]
		if all.add(f, nil); f.Pending && !f.Held && f.Waits == "" {
			warned++
		}
	}
	var parts []string
	if n := len(all.terminate); n > 0 {
		parts = append(parts, processes(n)+" would end")
	}
	if n := len(all.detach); n > 0 {
		parts = append(parts, text.Plural(n, "GPU")+" would be detached")
	}
	switch s := strings.Join(parts, ", "); {
	case s == "":
		return "nothing would be done"
	case warned == 0:
		return s
	case len(cycle.Plan.Orders) == 0:
		return s + ", after a warning"
	default:
		return s + ", some after a warning"
	}
}

// unmeasured says that the first look at a host can't tell what is idle there.
func unmeasured(cycle *controller.Cycle) string {
	hosts := cycle.Cluster.Hosts
	judged := func(h snapshot.Host) bool {
		return h.Snapshot != nil &&
			cycle.Policy.Settings(enforce.Query{Host: h.Name, Labels: h.Labels, At: cycle.Now}).Idle != nil
	}
	if cycle.Number > 1 || !slices.ContainsFunc(hosts, judged) {
		return ""
	}
	return "; what is idle isn't known after one look"
}

// uncounted says who doesn't count for the policy's caps.
func uncounted(u enforce.Uncounted) string {
	if u.Processes == 0 {
		return ""
	}
	people := "1 person"
	if u.People != 1 {
		people = fmt.Sprintf("%d people", u.People)
	}
	return fmt.Sprintf("; for caps and idle %s of %s outside of environments don't count: non-env-processes: count has "+
		"them count", processes(u.Processes), people)
}

func processes(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}
