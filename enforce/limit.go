package enforce

import (
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// limit holds back a plan that would do more than anybody meant. A plan that is
// over the limits is held as a whole, since nobody knows which part of it is
// the mistake; unless a single host has more than half of all that would be
// ended, and many at that, and the others are within the limits: then that host
// alone waits, or one that makes up processes could stop enforcement everywhere.
func (e *evaluation) limit(plan *Plan) {
	why := e.over(plan.Reports, "")
	if why == "" {
		return
	}
	if host, found := mostOf(plan.Reports); found {
		rest := slices.DeleteFunc(slices.Clone(plan.Reports), func(r HostReport) bool { return r.Host == host })
		if len(rest) > 0 && e.over(rest, host) == "" {
			plan.Reports = rest
			e.wait(plan, host, why)
			return
		}
	}
	plan.Held = why
}

// over says why reports are more than the limits allow, with the processes of
// all hosts but one; empty when they are not.
func (e *evaluation) over(reports []HostReport, but snapshot.Hostname) string {
	ends, processes := 0, 0
	for _, r := range reports {
		ends += len(r.Report.Terminate)
	}
	for _, h := range e.hosts {
		if but == "" || h.name != but {
			processes += len(h.snapshot.Processes)
		}
	}
	l := e.fleet.Limits
	if l.MaxTerminations > 0 && ends > l.MaxTerminations {
		return fmt.Sprintf("%d processes would be terminated, and the limit is %d a cycle", ends, l.MaxTerminations)
	}
	if l.MaxPercent > 0 && ends*100 > l.MaxPercent*processes {
		return fmt.Sprintf("%d of %d GPU processes would be terminated, and the limit is %d per cent a cycle", ends, processes, l.MaxPercent)
	}
	return ""
}

// mostOf is the host that has more than half of all that would be ended.
func mostOf(reports []HostReport) (snapshot.Hostname, bool) {
	all, most := 0, HostReport{}
	for _, r := range reports {
		all += len(r.Report.Terminate)
		if len(r.Report.Terminate) > len(most.Report.Terminate) {
			most = r
		}
	}
	n := len(most.Report.Terminate)
	return most.Host, n >= manyOnOneHost && 2*n > all
}

// manyOnOneHost is more than a host's GPU processes break rules in one cycle by
// other means than a mistake or a lie.
const manyOnOneHost = 64

// wait has the findings of a host wait that were to be acted on, and says why.
func (e *evaluation) wait(plan *Plan, host snapshot.Hostname, why string) {
	plan.HeldHost = host
	plan.HeldHostBecause = "most of it on this host alone: " + why
	for i := range plan.Findings {
		if f := &plan.Findings[i]; f.isOnlyOn(host) && !f.Pending {
			f.Pending, f.Held, f.Waits = true, true, "most of what would be ended is on this host alone, and that is over the limit"
		}
	}
}

// isOnlyOn says whether all that a finding is about is on one host.
func (f *Finding) isOnlyOn(host snapshot.Hostname) bool {
	if f.Host != "" || len(f.Terminate)+len(f.Detach) == 0 {
		return f.Host == host
	}
	return !slices.ContainsFunc(f.Terminate, func(r ProcessRef) bool { return r.Host != host }) &&
		!slices.ContainsFunc(f.Detach, func(r DeviceRef) bool { return r.Host != host })
}
