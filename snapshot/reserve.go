package snapshot

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// LateCancel is how long before its start a reservation may be cancelled without counting as one that was used.
const LateCancel = 12 * time.Hour

// Holds says whether it hasn't ended at a moment. It may not have begun.
func (b *Reservation) Holds(at time.Time) bool { return b.Ended == nil && at.Before(b.Until) }

// Runs says whether it has begun at a moment and hasn't ended.
func (b *Reservation) Runs(at time.Time) bool { return b.Holds(at) && !at.Before(b.From) }

// The years in which reservations are: JSON and calendars have no others, in whatever zone.
const (
	firstYear = 1970
	lastYear  = 9000
)

// CheckTimes refuses a reservation at times that can't be.
func (b *Reservation) CheckTimes() error {
	switch {
	case !b.Until.After(b.From):
		return errors.New("it ends before it begins")
	case b.From.Year() < firstYear || b.Until.Year() > lastYear:
		return fmt.Errorf("its years are not from %d to %d", firstYear, lastYear)
	}
	return nil
}

// Used is when it ends or ended; counts is false if it was cancelled so early that it counts as none.
func (b *Reservation) Used() (until time.Time, counts bool) {
	switch {
	case b.Ended == nil:
		return b.Until, true
	case b.Lapsed || b.Ended.After(b.From.Add(-LateCancel)):
		return *b.Ended, true
	}
	return time.Time{}, false
}

// RunningAt are those of a list that run at a moment, and how many GPUs they are together.
func RunningAt(list []Reservation, at time.Time) (running []Reservation, gpus int) {
	for i := range list {
		if list[i].Runs(at) {
			running = append(running, list[i])
			gpus += list[i].GPUs
		}
	}
	return running, gpus
}

// BookingRule is what a policy lets a person reserve. 0 bounds nothing.
type BookingRule struct {
	GPUs    int           `json:"gpus,omitempty"`
	AtOnce  int           `json:"at_once,omitempty"` // on all hosts
	Longest time.Duration `json:"longest,omitempty"`
	Ahead   time.Duration `json:"ahead,omitempty"`
	Pause   time.Duration `json:"pause,omitempty"` // from the end of one to the start of the next, on all hosts
}

// String says it in words: "2 GPUs, at most 3d, 30d ahead, 1 at once, 1d after the last one".
func (r *BookingRule) String() string {
	words := []string{"any number of GPUs"}
	if r.GPUs > 0 {
		words[0] = text.Plural(r.GPUs, "GPU")
	}
	add := func(set bool, format string, v any) {
		if set {
			words = append(words, fmt.Sprintf(format, v))
		}
	}
	add(r.Longest > 0, "at most %s", text.FormatDuration(r.Longest))
	add(r.Ahead > 0, "%s ahead", text.FormatDuration(r.Ahead))
	add(r.AtOnce > 0, "%d at once", r.AtOnce)
	add(r.Pause > 0, "%s after the last one", text.FormatDuration(r.Pause))
	return strings.Join(words, ", ")
}

// When is a time as people read it, in the zone in which it is.
func When(t time.Time) string { return t.Format("Mon 2006-01-02 15:04 MST") }

// TooMany says why it is one too many for its owner, and what would be allowed; empty if it isn't.
func (r *BookingRule) TooMany(own []Reservation, b *Reservation, now time.Time) string {
	holds := 0
	for i := range own {
		if own[i].Holds(now) {
			holds++
		}
	}
	if r.AtOnce > 0 && holds >= r.AtOnce {
		return fmt.Sprintf("you have %s, and %d may be at once, on all hosts together: ask again when one has ended",
			text.Plural(holds, "reservation"), r.AtOnce)
	}
	if until := r.pauseUntil(own, b); !until.IsZero() {
		return fmt.Sprintf("after a reservation you may have the next one %s later: the earliest start is %s",
			text.FormatDuration(r.Pause), When(until.In(b.From.Location())))
	}
	return ""
}

// pauseUntil is the earliest start after those that the owner has; zero if the reservation keeps the pause.
func (r *BookingRule) pauseUntil(own []Reservation, b *Reservation) (earliest time.Time) {
	tooClose := false
	for i := range own {
		end, counts := own[i].Used()
		if r.Pause == 0 || !counts {
			continue
		}
		before := own[i].Ended == nil && !b.Until.Add(r.Pause).After(own[i].From)
		tooClose = tooClose || !before && b.From.Before(end.Add(r.Pause))
		if end.Add(r.Pause).After(earliest) {
			earliest = end.Add(r.Pause)
		}
	}
	if !tooClose {
		return time.Time{}
	}
	return earliest
}
