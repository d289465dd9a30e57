package top

import (
	"cmp"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

func userColumns() []column {
	return []column{
		worded(flexible("USER", 10, 0), func(r *row) string { return string(r.user.Name) }),
		counted(right("DEVICES", 7, 0), func(r *row) int { return r.user.Attached }),
		counted(right("IDLE", 4, 0), func(r *row) int { return r.user.Idle }),
		counted(right("USED", 4, 8), func(r *row) int { return r.user.Used }),
		{right("CAP", 7, 9), capCell, nil},
		{
			right("MEM", 6, 7), words(func(r *row) string { return memory(&r.user.Memory) }),
			by(func(r *row) int64 { return r.user.Memory }),
		},
		counted(right("HOSTS", 5, 6), func(r *row) int { return r.user.Hosts }),
		counted(right("FINDINGS", 8, 5), func(r *row) int { return r.user.Findings }),
	}
}

// capCell is n/m: how many devices of those that the policy allows.
func capCell(_ *scene, r *row, _ time.Time) draw.Cell {
	if r.user.Cap == nil {
		return draw.Styled("-", draw.Faint)
	}
	c := fmt.Sprintf("%d/%d", r.user.Attached, *r.user.Cap)
	switch {
	case r.user.Attached > *r.user.Cap:
		return draw.Styled("!"+c, draw.Red)
	case r.user.Attached == *r.user.Cap:
		return draw.Styled(c, draw.Yellow)
	}
	return draw.Text(c)
}

func findingColumns() []column {
	return []column{
		{left("DUE", 8, 0), dueCell, by(func(r *row) int64 { return r.finding.Due.UnixNano() })},
		worded(flexible("USER", 8, 0), func(r *row) string { return string(r.finding.User) }),
		hostColumn(),
		worded(flexible("RULE", 8, 8), func(r *row) string { return string(r.finding.Rule) }),
		{right("SINCE", 5, 9), func(_ *scene, r *row, now time.Time) draw.Cell {
			return draw.Text(short(now.Sub(r.finding.Since)))
		}, by(func(r *row) int64 { return -r.finding.Since.UnixNano() })},
		{flexible("WHY", 12, 7), words(why), nil},
	}
}

// dueCell is when something is done about a finding, or why nothing is.
func dueCell(_ *scene, r *row, now time.Time) draw.Cell {
	f := r.finding
	switch f.Decision {
	case enforce.DecisionAct:
		return draw.Styled("now", draw.Red)
	case enforce.DecisionWait:
		if left := f.Due.Sub(now); left > 0 && f.Waits == "" {
			return draw.Styled("in "+short(left), draw.Yellow)
		}
		return draw.Styled("waits", draw.Yellow)
	case enforce.DecisionHold:
		return draw.Styled("held", draw.Magenta)
	case enforce.DecisionStuck:
		return draw.Styled("stuck", draw.Red)
	case enforce.DecisionUnderWay, enforce.DecisionDryRun, enforce.DecisionNone:
	}
	return draw.Text(string(f.Decision))
}

// why is the line of a finding, and what it waits for.
func why(r *row) string {
	if r.finding.Waits == "" {
		return r.finding.Line
	}
	return r.finding.Line + " (waits: " + r.finding.Waits + ")"
}

func historyColumns() []column {
	return []column{
		{left("TIME", 8, 0), timeCell, nil},
		worded(left("EVENT", 8, 0), func(r *row) string { return string(r.event.Kind) }),
		hostColumn(),
		worded(flexible("USER", 8, 9), func(r *row) string { return string(r.event.User) }),
		{left("DECISION", 8, 8), words(func(r *row) string {
			return cmp.Or(string(r.event.Status), string(r.event.Decision))
		}), nil},
		{flexible("WHAT", 12, 7), words(func(r *row) string { return r.event.Text }), nil},
	}
}

// timeCell has the date if the event isn't of today.
func timeCell(_ *scene, r *row, now time.Time) draw.Cell {
	at := r.event.Time.In(now.Location())
	if at.YearDay() != now.YearDay() || at.Year() != now.Year() {
		return draw.Text(at.Format("01-02 15:04"))
	}
	return draw.Text(at.Format(time.TimeOnly))
}

func failedColumns() []column {
	return []column{
		hostColumn(),
		{right("AGE", 6, 0), ageCell, by(age)},
		{flexible("CAUSE", 10, 8), func(_ *scene, r *row, _ time.Time) draw.Cell {
			return draw.Styled(draw.Shown(r.failure.Error), draw.Red)
		}, by(func(r *row) string { return string(r.failure.Class) })},
		{flexible("NEXT STEP", 10, 9), words(func(r *row) string { return r.failure.NextStep }), nil},
	}
}
