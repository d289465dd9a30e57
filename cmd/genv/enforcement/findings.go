package enforcement

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// printedFinding is what was printed about a finding.
type printedFinding struct {
	line  string // 1.4.3's
	since time.Time
	said  map[enforce.Decision]time.Time // when it was last printed with each decision

	orders int    // about it, which are under way
	over   string // what is printed when these have ended; empty while it isn't over
}

// say says whether a decision about a finding is to be printed. What is done about one that stays, and fails, changes
// again and again: that is printed once. Of an order that is under way, what is done is printed, and what comes of it.
func (f *printedFinding) say(d enforce.Decision, now time.Time) bool {
	at, said := f.said[d]
	if d == enforce.DecisionUnderWay || said && (d == enforce.DecisionAct || d == enforce.DecisionStuck ||
		now.Sub(at) < repeatAfter) {
		return false
	}
	f.said[d] = now
	return true
}

// waitOf says why nothing is done about a finding; empty when something is, or would be, as in 1.4.3.
func waitOf(f *enforce.Finding, now time.Time) string {
	left := f.Due.Sub(now)
	switch {
	case f.Waits != "":
		return fmt.Sprintf(" (waits: %s)", f.Waits)
	case f.Pending && left >= 2*time.Minute:
		return fmt.Sprintf(" (waits for %s)", text.ShortDuration(left))
	case f.Pending && left > 0:
		return fmt.Sprintf(" (waits for %s)", text.FormatDuration(max(left.Truncate(time.Second), time.Second)))
	case f.Pending:
		return " (waits for more cycles)"
	case f.Decision() == enforce.DecisionUnderWay:
		return " (an order about it is under way)"
	case len(f.Stuck) > 0:
		return fmt.Sprintf(" (process %d: %s)", f.Stuck[0].PID, cmp.Or(f.Stuck[0].Reason, "it cannot be ended"))
	}
	return ""
}

// repeats lets a line through when it is new, and when it has been repeated for an hour, then for two more hours, four,
// and so on: what happens in every cycle must not hide everything else.
type repeats struct {
	known map[string]*repeat
	tidy  time.Time
}

type repeat struct {
	first, last, next time.Time
	wait              time.Duration // until the one after next
	times             int
}

const (
	repeatAfter = time.Hour
	repeatMost  = 24 * time.Hour
	maxRepeats  = 1 << 16 // lines that are remembered; beyond that, all count as new
)

// admit says whether a line is to be printed, and what to add to it.
func (r *repeats) admit(line string, now time.Time) (remark string, ok bool) {
	if now.Sub(r.tidy) >= repeatAfter/2 { // what was not repeated for as long as it would not be printed is forgotten
		r.tidy = now
		maps.DeleteFunc(r.known, func(_ string, e *repeat) bool { return now.Sub(e.last) > repeatAfter })
	}
	e := r.known[line]
	if e == nil {
		if r.known == nil || len(r.known) >= maxRepeats {
			r.known = make(map[string]*repeat)
		}
		r.known[line] = &repeat{first: now, last: now, next: now.Add(repeatAfter), wait: 2 * repeatAfter, times: 1}
		return "", true
	}
	e.last = now
	e.times++
	if now.Before(e.next) {
		return "", false
	}
	e.next, e.wait = now.Add(e.wait), min(2*e.wait, repeatMost)
	return fmt.Sprintf(" (%d times within %s)", e.times, text.ShortDuration(now.Sub(e.first))), true
}
