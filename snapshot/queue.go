package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Wait is a command that waits for GPUs of a host: an open connection to root's service, and over with it.
type Wait struct {
	// ID is the same in the queues of all hosts in which one command waits.
	ID       string   `json:"id"`
	UID      UID      `json:"uid"`
	Username Username `json:"user,omitempty"` // the host's name for UID; empty if it has none
	// GPUs is how many the command asks for, in all.
	GPUs int `json:"gpus"`
	// Suits are the GPUs that it would take; nil for any.
	Suits []DeviceIndex `json:"suits,omitempty"`
	// Seconds is for how long it has been waiting, by the host's monotonic clock.
	Seconds int64 `json:"seconds"`
	// Offered are the GPUs that are free and kept for this wait alone.
	Offered []DeviceIndex `json:"offered,omitempty"`
	// Passed says that an offer was not taken in the last 24 hours: nothing is taken from others for it.
	Passed bool `json:"passed,omitempty"`
}

// Reservation is a booking of GPUs. Root's service keeps it. Its times are instants by the host's own clock.
type Reservation struct {
	ID       string    `json:"id"`
	UID      UID       `json:"uid"`
	Username Username  `json:"user,omitempty"` // the host's name for UID; empty if it has none
	GPUs     int       `json:"gpus"`
	From     time.Time `json:"from"`
	Until    time.Time `json:"until"`
	Made     time.Time `json:"made"` // when it was booked
	// Known is how many GPUs the host had when it was booked.
	Known  int    `json:"known"`
	Reason string `json:"reason,omitempty"` // as its owner wrote it
	// ByRoot says that root booked it, beyond what the policy lets its owner do.
	ByRoot bool `json:"by_root,omitempty"`
	// Unheld is since when nothing of it is held while it runs; nil otherwise.
	Unheld *time.Time `json:"unheld_since,omitempty"`
	// Ended is when it was cancelled, or lapsed because its GPUs were not held; nil while it holds.
	Ended  *time.Time `json:"ended,omitempty"`
	Lapsed bool       `json:"lapsed,omitempty"`
}

// Asked is who asked for GPUs lately. A controller tells the host what its caps allow them.
type Asked struct {
	Number uint64  `json:"number"` // of the last time; it only grows
	People []Asker `json:"people"`
}

// Asker is one of them.
type Asker struct {
	UID      UID      `json:"uid"`
	Username Username `json:"user,omitempty"` // the host's name for UID; empty if it has none
}

// What a host may have, so that a hostile one can't fill the controller's memory.
const (
	MaxWaits        = 2048
	MaxReservations = 64
	// MaxReserved is it with reservations that ended, which still count for who may reserve again.
	MaxReserved = 1024
	// MaxBookingReason is how long the reason of a reservation may be, in bytes.
	MaxBookingReason = 200
	maxGPUs          = 1024
	// maxWaited is more than any host runs, in seconds.
	maxWaited = 50 * 365 * 24 * 3600
	// MaxAskers is how many people Asked has.
	MaxAskers = 256
)

// queue reads waits and reservations. A list that the host doesn't send stays unknown, and so does one of a host on
// which users write the state: they could make up any.
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
