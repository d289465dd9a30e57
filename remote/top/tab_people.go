package top

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/top/draw"
)

func userColumns() []column {
	number := func(name string, drop int, value func(r *row) int) column {
		return column{
			name: name, least: len(name), right: true, drop: drop, compare: by(func(_ *scene, r *row) int { return value(r) }),
			cell: func(_ *scene, r *row, _ time.Time) draw.Cell { return draw.Text(strconv.Itoa(value(r))) },
		}
	}
	return []column{
		{name: "USER", least: 10, flexible: true, cell: func(_ *scene, r *row, _ time.Time) draw.Cell { return draw.Text(draw.Shown(string(r.user.Name))) }, compare: by(func(_ *scene, r *row) string { return string(r.user.Name) })},
		number("DEVICES", 0, func(r *row) int { return r.user.Attached }),
		number("IDLE", 0, func(r *row) int { return r.user.Idle }),
		number("USED", 2, func(r *row) int { return r.user.Used }),
		{name: "CAP", least: 7, right: true, drop: 1, cell: capCell},
		{name: "MEM", least: 6, right: true, drop: 3, cell: func(_ *scene, r *row, _ time.Time) draw.Cell { return draw.Text(memory(&r.user.Memory)) }, compare: by(func(_ *scene, r *row) int64 { return r.user.Memory })},
		number("HOSTS", 4, func(r *row) int { return r.user.Hosts }),
		number("FINDINGS", 5, func(r *row) int { return r.user.Findings }),
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
		{name: "DUE", least: 8, cell: dueCell, compare: by(func(_ *scene, r *row) int64 { return r.finding.Due.UnixNano() })},
		{name: "USER", least: 8, flexible: true, cell: func(_ *scene, r *row, _ time.Time) draw.Cell { return draw.Text(draw.Shown(string(r.finding.User))) }, compare: by(func(_ *scene, r *row) string { return string(r.finding.User) })},
		hostColumn(),
		{name: "RULE", least: 8, flexible: true, drop: 2, cell: func(_ *scene, r *row, _ time.Time) draw.Cell { return draw.Text(string(r.finding.Rule)) }, compare: by(func(_ *scene, r *row) string { return string(r.finding.Rule) })},
		{name: "SINCE", least: 5, right: true, drop: 1, cell: func(_ *scene, r *row, now time.Time) draw.Cell { return draw.Text(short(now.Sub(r.finding.Since))) }, compare: by(func(_ *scene, r *row) int64 { return -r.finding.Since.UnixNano() })},
		{name: "WHY", least: 12, flexible: true, drop: 3, cell: func(_ *scene, r *row, _ time.Time) draw.Cell { return draw.Text(why(r)) }},
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
	s := draw.Shown(r.finding.Line)
	if r.finding.Waits != "" {
		s += " (waits: " + draw.Shown(r.finding.Waits) + ")"
	}
	return s
}

func historyColumns() []column {
	return []column{
		{name: "TIME", least: 8, cell: timeCell},
		{name: "EVENT", least: 8, cell: func(_ *scene, r *row, _ time.Time) draw.Cell { return draw.Text(string(r.event.Kind)) }, compare: by(func(_ *scene, r *row) string { return string(r.event.Kind) })},
		hostColumn(),
		{name: "USER", least: 8, flexible: true, drop: 1, cell: func(_ *scene, r *row, _ time.Time) draw.Cell { return draw.Text(draw.Shown(string(r.event.User))) }, compare: by(func(_ *scene, r *row) string { return string(r.event.User) })},
		{name: "DECISION", least: 8, drop: 2, cell: outcomeCell},
		{name: "WHAT", least: 12, flexible: true, drop: 3, cell: func(_ *scene, r *row, _ time.Time) draw.Cell { return draw.Text(draw.Shown(r.event.Text)) }},
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

func outcomeCell(_ *scene, r *row, _ time.Time) draw.Cell {
	return draw.Text(cmp.Or(string(r.event.Status), string(r.event.Decision)))
}

func failedColumns() []column {
	return []column{
		hostColumn(),
		{name: "AGE", least: 6, right: true, cell: ageCell, compare: by(func(_ *scene, r *row) int64 { return -seen(r.host).UnixNano() })},
		{name: "CAUSE", least: 10, flexible: true, drop: 2, cell: func(_ *scene, r *row, _ time.Time) draw.Cell {
			return draw.Styled(draw.Shown(r.failure.Error), draw.Red)
		}, compare: by(func(_ *scene, r *row) string { return string(r.failure.Class) })},
		{name: "NEXT STEP", least: 10, flexible: true, drop: 1, cell: func(_ *scene, r *row, _ time.Time) draw.Cell { return draw.Text(draw.Shown(r.failure.NextStep)) }},
	}
}
