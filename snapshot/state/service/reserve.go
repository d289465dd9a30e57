package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const LapsesAfter = 30 * time.Minute // without holding any of its GPUs

const holdersEvery = time.Minute

// Reservations of this host are on disk before a request is answered.
type Reservations struct {
	Load     func() ([]snapshot.Reservation, error) // fs.ErrNotExist: none yet
	Save     func([]snapshot.Reservation) error
	GPUs     func(context.Context) (int, error) // known on this host
	Believed func() bool                        // whether the clock is right, else nothing ends; nil: always

	mu     sync.Mutex
	list   []snapshot.Reservation // nil before the first read
	looked time.Time              // when the holders of GPUs were last checked
	noted  bool                   // this service's clock set the Unheld times
}

// ClockBelieved says whether the clock is synchronised, or had an hour for that since boot.
func ClockBelieved() bool {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	return err == nil && state != unix.TIME_ERROR || sinceBoot() > time.Hour
}

func (r *Reservations) believed() bool { return r.Believed == nil || r.Believed() }

func (r *Reservations) read() error {
	if r.list != nil {
		return nil
	}
	list, err := r.Load()
	if errors.Is(err, fs.ErrNotExist) { // the first start of this version
		list, err = []snapshot.Reservation{}, r.Save([]snapshot.Reservation{})
	}
	if err != nil {
		return fmt.Errorf("the reservations of this host can't be read: %w", err)
	}
	r.list = list
	return nil
}

func (r *Reservations) change(by func([]snapshot.Reservation) ([]snapshot.Reservation, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.read(); err != nil {
		return err
	}
	list, err := by(r.list)
	if err == nil && !slices.Equal(list, r.list) {
		if err = r.Save(list); err == nil {
			r.list = list
		}
	}
	return err
}

// All returns the reservations; none if r is nil.
func (r *Reservations) All() ([]snapshot.Reservation, error) {
	if r == nil {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.read()
	return r.list, err
}

// Tend ends reservations that are over or lapse. look, called only if needed, says which may hold GPUs.
func (r *Reservations) Tend(now time.Time, look func() (held func(*snapshot.Reservation) bool, err error)) error {
	list, err := r.All()
	if err != nil {
		return err
	}
	believed, since := r.believed(), now.Sub(r.looked)
	looks := believed && (since < 0 || since >= holdersEvery)
	held := func(*snapshot.Reservation) bool { return true } // also while unknown
	if looks {
		r.looked = now
		if _, gpus := snapshot.RunningAt(list, now); gpus > 0 {
			if known, err := look(); err == nil {
				held = known
			}
		}
	}
	return r.change(func(list []snapshot.Reservation) ([]snapshot.Reservation, error) {
		var lapse map[string]bool
		if looks {
			list, lapse = lapsing(list, now, !r.noted, held)
			r.noted = true
		}
		return state.End(list, lapse, now, believed), nil
	})
}

// lapsing notes since when running reservations hold no GPU, and returns those for which that is too long. first: an
// earlier service set the times, by a clock that may have been set since, so one more look must confirm them.
func lapsing(list []snapshot.Reservation, now time.Time, first bool, held func(*snapshot.Reservation) bool) (
	next []snapshot.Reservation, lapse map[string]bool,
) {
	next, lapse = slices.Clone(list), make(map[string]bool)
	for i := range next {
		b := &next[i]
		switch {
		case b.Ended != nil:
		case !b.Runs(now) || held(b):
			b.Unheld = nil
		case b.Unheld == nil:
			b.Unheld = &now
		case first:
			since := now.Add(-min(max(now.Sub(*b.Unheld), 0), LapsesAfter-holdersEvery))
			b.Unheld = &since
		default:
			lapse[b.ID] = now.Sub(*b.Unheld) >= LapsesAfter
		}
	}
	return next, lapse
}

func (s *Server) reserve(ctx context.Context, r *snapshot.Reservation, by callerProcess) (Answer, error) {
	uid := by.reserver()
	asked, reserver := *r, state.Reserver{UID: uid}
	if !by.isRoot() {
		asked.UID = uid
	}
	asked.Username = s.Username(ctx, asked.UID)
	known, err := s.Reservations.GPUs(ctx)
	if err == nil && uid != 0 {
		err = s.addRule(ctx, &reserver, known)
	}
	if err != nil {
		return Answer{}, err
	}
	var made snapshot.Reservation
	err = s.Reservations.change(func(list []snapshot.Reservation) (next []snapshot.Reservation, err error) {
		list = state.End(list, nil, s.Now(), s.Reservations.believed()) // cancelled ones don't fill the disk
		next, made, err = state.Reserve(list, asked, reserver, known, s.Now())
		return next, err
	})
	answer := Answer{Reservation: &made}
	if err == nil && reserver.Rule != nil && s.isInUse(ctx, &made) {
		answer.Freed = made.Made.Add(reserver.Rule.Warn)
	}
	return answer, err
}

// isInUse says whether others use GPUs that r needs at its start.
func (s *Server) isInUse(ctx context.Context, r *snapshot.Reservation) bool {
	list, _ := s.Reservations.All()
	look, err := s.Backend.Snapshot(ctx)
	if err != nil {
		return false
	}
	files := filesOf(look)
	return files.Overbooked(list, r.From, peopleOn(look)) > 0
}

func (s *Server) cancel(id string, by callerProcess) (Answer, error) {
	var ended snapshot.Reservation
	err := s.Reservations.change(func(list []snapshot.Reservation) (next []snapshot.Reservation, err error) {
		next, ended, err = state.Cancel(list, id, by.reserver(), s.Now())
		return next, err
	})
	return Answer{Reservation: &ended}, err
}

// Reservable is what a policy lets a person reserve, and what the person reserved on other hosts.
type Reservable struct {
	snapshot.ReservationRule
	Elsewhere []snapshot.Reservation `json:"elsewhere,omitempty"`
	Unknown   bool                   `json:"unknown,omitempty"` // the rule for this person is unknown
}

const askAgain = 200 * time.Millisecond // between questions to the controller about an unknown person

func (s *Server) addRule(ctx context.Context, by *state.Reserver, known int) error {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	var person Person
	t := s.allowanceFor(ctx, by.UID)
	for isKnown := false; ; t = s.lookAgain(ctx, by.UID) {
		if !t.holds(s.Now()) {
			return state.Unavailable("only root may reserve GPUs while no policy is enforced here")
		}
		if person, isKnown = t.People[by.UID]; isKnown && (person.Reservable == nil || !person.Reservable.Unknown) {
			break
		}
		if ctx.Err() != nil {
			return state.Unavailable("it isn't known yet what the policy lets you reserve here: try it " +
				"again in a minute")
		}
		pause(ctx, askAgain) // meanwhile the controller asks the account directory
	}
	if b := person.Reservable; b != nil {
		by.Rule, by.Elsewhere = &b.ReservationRule, b.Elsewhere
	}
	by.Caps = func(r *snapshot.Reservation, here []snapshot.Reservation) error {
		for i := range person.Caps {
			u := &person.Caps[i]
			c := t.cap(u)
			booked := state.AtOnce(slices.Concat(here, u.Booked), r)
			room := u.Limit - int64(booked-(known-len(c.GPUs))) // the cap may not cover all GPUs here
			over := !c.Until.IsZero() && !c.Until.After(r.From)
			if c.Counts == "gpus" && !c.While && !c.Together && !over && room < 0 {
				return state.Unavailable("%s allows you %s: reserve at most %d here at that time",
					c.label(), text.CapAmount(c.Counts, u.Limit), max(0, int64(r.GPUs)+room))
			}
		}
		return nil
	}
	return nil
}

// Reserve books GPUs. It retries without an answer, safely due to the ID. freed is about when others lose GPUs for it;
// zero if they don't.
func (c Client) Reserve(ctx context.Context, r snapshot.Reservation) (
	made snapshot.Reservation, freed time.Time, err error,
) {
	return c.untilAnswered(ctx, Request{Reserve: &r})
}

// CancelReservation ends a reservation.
func (c Client) CancelReservation(ctx context.Context, id string) (snapshot.Reservation, error) {
	ended, _, err := c.untilAnswered(ctx, Request{Cancel: id})
	return ended, err
}

const restartsWithin = 10 * time.Second // for a killed service to restart

func (c Client) untilAnswered(ctx context.Context, r Request) (_ snapshot.Reservation, freed time.Time, _ error) {
	lost := false
	for begun := time.Now(); ; {
		answer, err := c.ask(ctx, r)
		lost = lost || errors.Is(err, ErrUnknown)
		if !lost || !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrNotRunning) ||
			time.Since(begun) > restartsWithin || ctx.Err() != nil {
			made, err := given(answer.Reservation, err)
			return made, answer.Freed, err
		}
		pause(ctx, 100*time.Millisecond)
	}
}
