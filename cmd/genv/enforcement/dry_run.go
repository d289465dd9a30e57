package enforcement

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// intention is what a dry run leaves undone, or would do later.
type intention struct {
	host snapshot.Hostname
	what string
	when string // empty for now
	why  []string
}

func (i *intention) line() string {
	what := i.what + i.when
	if len(i.why) > 0 {
		what += " because: " + strings.Join(i.why, "; ")
	}
	return what
}

// intentionsOf are those of a plan: what is due, then what waits for its time.
func intentionsOf(cycle *controller.Cycle) []intention {
	var list []intention
	due := make(map[enforce.ProcessRef]bool)
	detached := make(map[enforce.DeviceRef]bool)
	for _, o := range cycle.Plan.Orders {
		for _, d := range o.Order.Detach {
			list = append(list, intention{host: o.Host, what: d.Intention(), why: d.Why})
			detached[enforce.DeviceRef{Host: o.Host, Index: d.Device, EID: d.Environment.EID}] = true
		}
		for _, t := range o.Order.Terminate {
			list = append(list, intention{host: o.Host, what: t.Intention(), why: t.Why})
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
			if d := detachment(hosts[ref.Host], ref); d != nil && !detached[ref] {
				list = append(list, intention{ref.Host, d.Intention(), when, []string{f.Line()}})
			}
		}
		for _, ref := range f.Terminate {
			if t := termination(hosts[ref.Host], ref, f); t != nil && !due[ref] {
				list = append(list, intention{ref.Host, t.Intention(), when, []string{f.Line()}})
			}
		}
	}
	return list
}

// whenDue says when something is done about a finding that waits.
func whenDue(f *enforce.Finding, now time.Time) string {
	if left := f.Due.Sub(now); left > 0 {
		return fmt.Sprintf(" in %s, if it lasts,", text.ShortDuration(max(left, time.Second)))
	}
	return " after more cycles, if it lasts,"
}

// termination is what would be done to a process; nil if the host doesn't show it.
func termination(s *snapshot.Snapshot, ref enforce.ProcessRef, f *enforce.Finding) *order.Termination {
	if s == nil {
		return nil
	}
	for i := range s.Processes {
		if p := &s.Processes[i]; p.PID == ref.PID {
			outside := f.Rule == enforce.RuleNonEnvProcesses
			return &order.Termination{Process: *p, InNoEnvironment: &outside}
		}
	}
	return nil
}

// detachment is what would be done to an attachment; nil if the host doesn't show its environment.
func detachment(s *snapshot.Snapshot, ref enforce.DeviceRef) *order.Detachment {
	if s == nil {
		return nil
	}
	for i := range s.Environments {
		if e := &s.Environments[i]; e.EID == ref.EID {
			return &order.Detachment{Device: ref.Index, Environment: *e}
		}
	}
	return nil
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

// intentions prints what a dry run leaves undone, when it is not what the last cycle did.
func (w *cycleWriter) intentions(cycle *controller.Cycle) {
	now := make(map[string]bool)
	for _, i := range intentionsOf(cycle) {
		key := on(i.host, i.what)
		if i.when != "" {
			key += " later"
		}
		if !w.intended[key] && !now[key] {
			w.print(i.host, i.line())
		}
		now[key] = true
	}
	w.intended = now
}
