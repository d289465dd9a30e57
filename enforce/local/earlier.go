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

// graceOf is how long the order waits for a target.
func (x *execution) graceOf(t *target) time.Duration {
	wait, _ := t.earlier.Rest(x.Grace)
	return wait
}

// mayKill reports whether SIGKILL may follow then.
func (x *execution) mayKill(t *target) bool {
	_, kill := t.earlier.Rest(x.Grace)
	return kill
}

// byGrace are the targets in groups that are treated alike, the shortest grace first.
func (x *execution) byGrace(targets []*target) [][]*target {
	type alike struct {
		grace time.Duration
		kill  bool
	}
	groups := map[alike]int{}
	var list [][]*target
	for _, t := range targets {
		key := alike{x.graceOf(t), x.mayKill(t)}
		i, known := groups[key]
		if !known {
			i = len(list)
			groups[key], list = i, append(list, nil)
		}
		list[i] = append(list[i], t)
	}
	slices.SortStableFunc(list, func(a, b []*target) int { return cmp.Compare(x.graceOf(a[0]), x.graceOf(b[0])) })
	return list
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
