package enforcement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// findings are those that were announced and are not over. Their number is bounded by that
// of the findings which the enforcement's memory knows.
type findings map[string]*printedFinding

// printedFinding is what was printed about a finding.
type printedFinding struct {
	host  snapshot.Hostname
	line  string // 1.4.3's
	since time.Time
	said  map[enforce.Decision]time.Time // when it was last printed with each decision
}

// begin notes a finding that is new, or about which something else was decided.
func (l findings) begin(e *enforce.Event, now time.Time) *printedFinding {
	f := l[e.ID]
	if f == nil {
		f = &printedFinding{host: e.Host, line: e.Finding.String(), since: e.Finding.Since, said: make(map[enforce.Decision]time.Time)}
		if f.since.IsZero() {
			f.since = now
		}
		l[e.ID] = f
	}
	return f
}

// sayAgain says whether a decision about a finding is to be printed. What is done about
// one that stays, and fails, changes in a cycle of its own: that is printed once.
func (f *printedFinding) sayAgain(d enforce.Decision, now time.Time) bool {
	if d == enforce.DecisionUnderWay { // what is done is printed, and what comes of it
		return false
	}
	at, said := f.said[d]
	if said && (d == enforce.DecisionAct || d == enforce.DecisionStuck || now.Sub(at) < repeatAfter) {
		return false
	}
	f.said[d] = now
	return true
}

// over is a line about the end of a finding.
func (f *printedFinding) over(now time.Time) string {
	return on(f.host, fmt.Sprintf("Resolved after %s: %s", text.ShortDuration(max(now.Sub(f.since), time.Second)), f.line))
}

// waitOf says why nothing is done about a finding; empty when something is, or
// would be, as in 1.4.3.
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

// overLines are lines about findings that are over: of a host with many, how many.
func overLines(over []*printedFinding, now time.Time) []string {
	slices.SortFunc(over, func(a, b *printedFinding) int {
		return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.line, b.line))
	})
	perHost := make(map[snapshot.Hostname]int)
	longest := make(map[snapshot.Hostname]time.Duration)
	for _, f := range over {
		perHost[f.host]++
		longest[f.host] = max(longest[f.host], now.Sub(f.since))
	}
	var lines []string
	for _, f := range over {
		switch n := perHost[f.host]; {
		case n == 0: // said already
		case n <= maxOver:
			lines = append(lines, f.over(now))
		default:
			lines = append(lines, on(f.host, fmt.Sprintf("Over: %d findings, the longest after %s", n, text.ShortDuration(longest[f.host]))))
			perHost[f.host] = 0
		}
	}
	return lines
}

// maxOver is how many findings of a host that are over in one cycle are named.
const maxOver = 8

// repeats lets a line through when it is new, and when it has been repeated for an hour,
// then for two more hours, four, and so on: what happens in every cycle must not hide
// everything else.
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
	r.clean(now)
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

// clean forgets what was not repeated for as long as it would not be printed.
func (r *repeats) clean(now time.Time) {
	if now.Sub(r.tidy) < repeatAfter/2 {
		return
	}
	r.tidy = now
	maps.DeleteFunc(r.known, func(_ string, e *repeat) bool { return now.Sub(e.last) > repeatAfter })
}

// forget lets a line through as a new one.
func (r *repeats) forget(line string) { delete(r.known, line) }

// lineKey is what lines about a host have in common. Of findings, as of a job array that starts processes all the time,
// and of notes the first ones in an hour are printed, and the others are counted. What is done because of them is printed anyway.
type lineKey struct {
	user snapshot.Username
	what string // a rule, or denied; empty for notes
}

const (
	rateShown   = 5   // findings of a rule and a user that are printed in an hour
	notesShown  = 100 // notes of a host, and opens of a user that were denied
	linesOfHost = 2000
)

// admit says whether a line is to be printed.
func (w *cycleWriter) admit(host snapshot.Hostname, key lineKey, most int, now time.Time) bool {
	if !w.dated {
		return true
	}
	_, _, ok := w.budget.Spend(host, key, 1, controller.Share{User: most, Host: linesOfHost}, now)
	return ok
}

// leftOut says how many lines were not printed: at first, and when the hour is over.
func (w *cycleWriter) leftOut(now time.Time) {
	for _, over := range w.budget.Over(now) {
		about := over.User.what
		if over.User.user != "" {
			about += ", user " + text.Shown(string(over.User.user))
		}
		line := "… and " + render.Plural(over.Count, "more note")
		if about != "" {
			line = "… and " + render.Plural(over.Count, "more such finding") + " (" + about + ")"
		}
		if over.Ended {
			line += " within 1h"
		} else {
			line += "; more are counted once in 1h"
		}
		w.note(over.Host, line)
	}
}
