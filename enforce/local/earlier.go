package local

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/local/asked"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// begin notes that the targets are asked to end, and finds those that were asked before. The
// caller passes to signalled those that were asked now, or before.
func (x *execution) begin(targets []*target) (signalled func([]*target)) {
	if x.options.Asked == nil || len(targets) == 0 {
		return func([]*target) {}
	}
	processes := make([]proc.ID, len(targets))
	for i, t := range targets {
		if stat, err := x.proc().Stat(t.judged.PID); err == nil {
			t.start = stat.Start // if it isn't that of its pidfd, verify finds it out
		}
		processes[i] = proc.ID{PID: t.judged.PID, Start: t.start}
	}
	end, earlier, err := x.options.Asked.Begin(asked.EndRequest{By: x.asker.Name, Order: x.id, Grace: x.Grace}, processes)
	for i, e := range earlier {
		targets[i].earlier = e
	}
	if err != nil {
		x.onWarning(err.Error())
		return func([]*target) {}
	}
	return func(got []*target) {
		var mine []proc.ID
		for _, t := range got {
			if t.earlier == nil {
				mine = append(mine, proc.ID{PID: t.judged.PID, Start: t.start})
			}
		}
		if err := end(mine); err != nil {
			x.onWarning(err.Error())
		}
	}
}

// byGrace are the targets in groups that are treated alike, the shortest grace first.
func (x *execution) byGrace(targets []*target) (groups [][]*target) {
	for _, t := range targets {
		t.grace, t.mayKill = t.earlier.Rest(x.Grace)
		alike := func(group []*target) bool { return group[0].grace == t.grace && group[0].mayKill == t.mayKill }
		if i := slices.IndexFunc(groups, alike); i >= 0 {
			groups[i] = append(groups[i], t)
		} else {
			groups = append(groups, []*target{t})
		}
	}
	slices.SortStableFunc(groups, func(a, b []*target) int { return cmp.Compare(a[0].grace, b[0].grace) })
	return groups
}

// earlierReason is what an outcome adds about a target that was asked before.
func (t *target) earlierReason() string {
	e := t.earlier
	said := fmt.Sprintf("already under way: another order asked it to end %s ago",
		text.FormatDuration(e.Ago.Round(time.Second)))
	if e.Left > 0 {
		said += fmt.Sprintf(", and it has %s from then on", text.FormatDuration((e.Ago + e.Left).Round(time.Second)))
	}
	return said
}
