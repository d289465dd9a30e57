package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

const LateCancel = 12 * time.Hour // before the start: reservations cancelled later count as used

// Holds says whether it hasn't ended at a time; it may not have begun.
func (b *Reservation) Holds(at time.Time) bool { return b.Ended == nil && at.Before(b.Until) }

// Runs says whether it has begun and not ended at a time.
func (b *Reservation) Runs(at time.Time) bool { return b.Holds(at) && !at.Before(b.From) }

// JSON and calendars have no other years, in any zone.
const (
	firstYear = 1970
	lastYear  = 9000
)

// CheckTimes refuses impossible times.
func (b *Reservation) CheckTimes() error {
	switch {
	case !b.Until.After(b.From):
		return errors.New("it ends before it begins")
	case b.From.Year() < firstYear || b.Until.Year() > lastYear:
		return fmt.Errorf("its years are not from %d to %d", firstYear, lastYear)
	}
	return nil
}

// Used returns its end; counts is false if it was cancelled early: see LateCancel.
func (b *Reservation) Used() (until time.Time, counts bool) {
	switch {
	case b.Ended == nil:
		return b.Until, true
	case b.Lapsed || b.Ended.After(b.From.Add(-LateCancel)):
		return *b.Ended, true
	}
	return time.Time{}, false
}

// RunningAt returns the reservations that run at a time, and the sum of their GPUs.
func RunningAt(list []Reservation, at time.Time) (running []Reservation, gpus int) {
	for i := range list {
		if list[i].Runs(at) {
			running = append(running, list[i])
			gpus += list[i].GPUs
		}
	}
	return running, gpus
}

// ReservationRule is what a policy lets a person reserve. 0 is unlimited.
type ReservationRule struct {
	GPUs    int           `json:"gpus,omitempty"`
	AtOnce  int           `json:"at_once,omitempty"` // on all hosts
	Longest time.Duration `json:"longest,omitempty"`
	Ahead   time.Duration `json:"ahead,omitempty"`
	Pause   time.Duration `json:"pause,omitempty"` // from the end of one to the start of the next, on all hosts
	Warn    time.Duration `json:"warn,omitempty"`  // how long others are warned before they lose GPUs for it
}

// String is as in "2 GPUs, at most 3d, 30d ahead, 1 at once, 1d after the last one".
func (r *ReservationRule) String() string {
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

// When formats a time for people, in its own zone.
func When(t time.Time) string { return t.Format("Mon 2006-01-02 15:04 MST") }

// TooMany says why b is one too many, and what is allowed; empty if it isn't.
func (r *ReservationRule) TooMany(own []Reservation, b *Reservation, now time.Time) string {
	var ends []time.Time
	for i := range own {
		if own[i].Holds(now) {
			ends = append(ends, own[i].Until)
		}
	}
	earliest, tooClose := r.pauseUntil(own, b)
	start := When(earliest.In(b.From.Location()))
	if n := len(ends); r.AtOnce > 0 && n >= r.AtOnce {
		slices.SortFunc(ends, time.Time.Compare)
		why := fmt.Sprintf("you have %s, and %d may be at once, on all hosts together: ask again after %s",
			text.Plural(n, "reservation"), r.AtOnce, When(ends[n-r.AtOnce].In(b.From.Location())))
		if r.Pause > 0 {
			why += ", for a start from " + start
		}
		return why
	}
	if tooClose {
		return fmt.Sprintf("after a reservation you may have the next one %s later: the earliest start is %s",
			text.FormatDuration(r.Pause), start)
	}
	return ""
}

func (r *ReservationRule) pauseUntil(own []Reservation, b *Reservation) (earliest time.Time, tooClose bool) {
	for i := range own {
		end, counts := own[i].Used()
		if r.Pause == 0 || !counts {
			continue
		}
		before := own[i].Ended == nil && !b.Until.Add(r.Pause).After(own[i].From)
		end = end.Add(r.Pause + time.Minute - 1).Truncate(time.Minute)
		tooClose = tooClose || !before && b.From.Before(end)
		if end.After(earliest) {
			earliest = end
		}
	}
	return earliest, tooClose
}

// Wait is a command that waits for GPUs, until its connection to root's service ends.
type Wait struct {
	ID       string        `json:"id"` // the same on all hosts where the command waits
	UID      UID           `json:"uid"`
	Username Username      `json:"user,omitempty"`    // the host's name for UID; empty if it has none
	GPUs     int           `json:"gpus"`              // how many the command asks for
	Suits    []DeviceIndex `json:"suits,omitempty"`   // the GPUs that it would take; nil for any
	Seconds  int64         `json:"seconds"`           // how long it has waited, by the host's monotonic clock
	Offered  []DeviceIndex `json:"offered,omitempty"` // the GPUs that are free and kept for this wait alone
	// Passed says that an offer was not taken in the last 24 hours: nothing is freed for it.
	Passed bool `json:"passed,omitempty"`
}

// Reservation keeps GPUs for a person, by the host's clock. Root's service keeps it.
type Reservation struct {
	ID       string    `json:"id"`
	UID      UID       `json:"uid"`
	Username Username  `json:"user,omitempty"` // the host's name for UID; empty if it has none
	GPUs     int       `json:"gpus"`
	From     time.Time `json:"from"`
	Until    time.Time `json:"until"`
	Made     time.Time `json:"made"`             // when it was booked
	Known    int       `json:"known"`            // how many GPUs the host had when it was booked
	Reason   string    `json:"reason,omitempty"` // as its owner wrote it

	ByRoot bool       `json:"by_root,omitempty"`      // root booked it, beyond what the policy lets its owner do
	Unheld *time.Time `json:"unheld_since,omitempty"` // since when nothing of it is held while it runs; else nil
	Ended  *time.Time `json:"ended,omitempty"`        // when it was over, cancelled or lapsed; nil while it holds
	Lapsed bool       `json:"lapsed,omitempty"`       // it ended because its GPUs were not held
}

// Asked lists who asked for GPUs lately: a controller tells the host what its caps allow them.
type Asked struct {
	Number uint64  `json:"number"` // of the last time; it only grows
	People []Asker `json:"people"`
}

// Asker is one of them.
type Asker struct {
	UID      UID      `json:"uid"`
	Username Username `json:"user,omitempty"` // the host's name for UID; empty if it has none
}

// Limits for a host, so that a hostile one can't fill the controller's memory.
const (
	MaxWaits         = 2048
	MaxReservations  = 64   // that haven't ended
	MaxReserved      = 1024 // with ended ones, which still count for who may reserve again
	MaxBookingReason = 200  // bytes
	MaxAskers        = 256  // people in Asked
	maxGPUs          = 1024
	maxWaited        = 50 * 365 * 24 * 3600 // seconds: more than any host runs
)

// queue reads waits and reservations. They are unknown if the host doesn't send them, or users can write its state.
func (r *reader) queue(s *Snapshot) (err error) {
	if s.Service != nil && !*s.Service {
		s.Waits, s.Reservations = nil, nil
	}
	if s.Waits != nil {
		s.Waits, err = kept(r, s.Waits, "wait", MaxWaits, (*Wait).read, func(w *Wait) string { return w.ID })
	}
	if s.Reservations != nil && err == nil {
		s.Reservations, err = kept(r, s.Reservations, "reservation", MaxReserved, (*Reservation).read,
			func(b *Reservation) string { return b.ID })
		holding := slices.DeleteFunc(slices.Clone(s.Reservations), func(b Reservation) bool { return b.Ended != nil })
		if err == nil && len(holding) > MaxReservations {
			err = tooMany(len(holding), "reservations that haven't ended", MaxReservations)
		}
	}
	if s.Asked != nil && err == nil {
		asked := *s.Asked
		asked.People = slices.Clone(asked.People[:min(len(asked.People), MaxAskers)])
		for i := range asked.People {
			cleanText(r, "user", &asked.People[i].Username)
		}
		s.Asked = &asked
	}
	return err
}

func (w *Wait) read(r *reader) (Wait, error) {
	cleanText(r, "user", &w.Username)
	w.Seconds = min(max(w.Seconds, 0), maxWaited)
	if len(w.Suits) > maxGPUs || len(w.Offered) > maxGPUs {
		return *w, fmt.Errorf("it names more than %d GPUs", maxGPUs)
	}
	return *w, checkBooked(w.ID, w.GPUs)
}

func (b *Reservation) read(r *reader) (Reservation, error) {
	cleanText(r, "user", &b.Username)
	cleanText(r, "reason", &b.Reason)
	b.Reason = text.Cut(b.Reason, MaxBookingReason)
	return *b, cmp.Or(b.CheckTimes(), checkBooked(b.ID, b.GPUs))
}

func checkBooked(id string, gpus int) error {
	switch {
	case id == "":
		return errors.New("it has no id")
	case gpus < 1 || gpus > maxGPUs:
		return fmt.Errorf("it is about %d GPUs", gpus)
	}
	return CheckText("id", id)
}
