package enforcement

import (
	"fmt"
	"maps"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

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
