package controllers

import (
	"cmp"
	"slices"
	"time"
)

// entry is a controller in the file. Its times are those since the boot of the host, which
// setting the clock doesn't change.
type entry struct {
	Controller
	Login  string        `json:"login,omitempty"`
	Serves int           `json:"serves"` // the PID of the genv that speaks with it
	First  time.Duration `json:"first_ns"`
	Last   time.Duration `json:"last_ns"` // when it was in contact
	// Brief says that it isn't known how often it comes: see Registry.Note.
	Brief bool `json:"brief,omitempty"`
	// Fenced says that the host lets one such controller act at a time, and refuses the others.
	Fenced bool `json:"fenced,omitempty"`
}

const (
	// missed is how many intervals without contact end an entry, and atLeast for how
	// long it is kept at least: a cycle may have to wait for hosts that hang.
	missed  = 3
	atLeast = 20 * time.Second
	// brief is how long an entry is kept of which the interval isn't known.
	brief = 10 * time.Minute
	// refresh is how old a contact in the file gets.
	refresh = 5 * time.Second
)

// ended reports whether a controller was without contact for too long at a time.
func (e *entry) ended(now time.Duration) bool {
	keep := max(missed*e.Interval(), atLeast)
	if e.Brief {
		keep = brief
	}
	return now-e.Last > keep || now < e.Last
}

// list are the entries of a host. Its methods change no list: they return another.
type list []entry

// with returns the list after a contact, without those that ended. stale says whether it
// has to be written.
func (l list) with(e entry, now time.Duration) (next list, stale bool) {
	e.First, e.Last, stale = now, now, true
	for i := range l {
		switch known := &l[i]; {
		case known.ended(now):
		case known.Same(&e.Controller):
			e.First = known.First
			stale = known.changed(&e) || now-known.Last >= refresh
			if !stale {
				e.Last = known.Last
			}
		case known.Fenced && e.Fenced: // e was admitted later; if not, the other one is listed again with its next contact
		default:
			next = append(next, *known)
		}
	}
	if most := MaxOthers; len(next) > most { // those that were in contact last stay
		slices.SortStableFunc(next, func(a, b entry) int { return cmp.Compare(b.Last, a.Last) })
		next, stale = next[:most], true
	}
	next = append(next, e)
	slices.SortStableFunc(next, func(a, b entry) int { return cmp.Compare(a.First, b.First) })
	return next, stale || len(next) != len(l)
}

// changed reports whether an entry says something else than before, apart from its times.
func (e *entry) changed(now *entry) bool {
	before, after := *e, *now
	before.First, before.Last, after.First, after.Last = 0, 0, 0, 0
	same := before.Started.Equal(after.Started)
	before.Started, after.Started = time.Time{}, time.Time{}
	return !same || before != after
}

// without returns the list without a controller that this process served.
func (l list) without(c *Controller, serves int) list {
	return slices.DeleteFunc(slices.Clone(l), func(e entry) bool { return e.Same(c) && e.Serves == serves })
}

// others are the controllers in contact at a time, apart from one. clock is what the time
// of day is then.
func (l list) others(self *Controller, now time.Duration, clock time.Time) []Seen {
	var others []Seen
	for i := range l {
		e := &l[i]
		if !e.ended(now) && !e.Same(self) {
			others = append(others, Seen{Controller: e.Controller, Login: e.Login, Since: clock.Add(e.First - now).Round(time.Second).UTC()})
		}
	}
	return others[:min(len(others), MaxOthers)]
}
