package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// loaded is the guard in the kernel while this Keeper has it open, and what was written to it last.
type loaded struct {
	Kernel
	stop     func()                  // ends the reading of events
	left     map[snapshot.UID]Minors // what an earlier Keeper allowed; nil if the guard is new
	plan     access
	planned  bool // plan was written
	unpinned bool // it ends with this process
	full     bool // there are more users than the kernel has room for
	control  Control
	deadline time.Time // by the wall clock; zero before the first SetControl
}

// open attaches the guard in the kernel, or takes it over.
func (s *lockedKeeper) open(ctx context.Context) (*loaded, error) {
	k, err := s.Open()
	if err != nil {
		return nil, err
	}
	now, err := k.State()
	if err != nil {
		return nil, errors.Join(err, k.Close())
	}
	g := &loaded{Kernel: k, unpinned: now.Dir == ""}
	if now.Mode != Off && now.Lease > 0 {
		g.left = now.Allowed
	}
	reading, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := k.Events(reading, s.denials.take); err != nil && reading.Err() == nil {
			s.Log.Error().Err(err).Msg("denials can't be read")
		}
	}()
	g.stop = func() { stop(); <-ended }
	return g, nil
}

// release gives up the guard in the kernel and leaves it as it is.
func (s *lockedKeeper) release() {
	if s.loaded == nil {
		return
	}
	s.loaded.stop()
	if err := s.loaded.Close(); err != nil {
		s.Log.Error().Err(err).Msg("close the guard")
	}
	s.loaded = nil
}

// allowed is who may open what in the kernel at this moment.
func (g *loaded) allowed() map[snapshot.UID]Minors {
	switch {
	case g == nil:
		return nil
	case g.planned:
		return g.plan.Allowed
	}
	return g.left
}

// write writes a plan to the kernel, as far as it differs: permissions before what they are exceptions from.
func (g *loaded) write(p access) error {
	err := g.SetAllowed(p.Allowed)
	if g.full = errors.Is(err, ErrFull); err != nil && !g.full {
		return err
	}
	if !g.planned || g.plan.Guarded != p.Guarded {
		if err := g.SetMinors(p.Guarded); err != nil {
			return err
		}
	}
	g.plan, g.planned = p, true
	return nil
}

// renew sets mode and lease in the kernel. The deadline that people see, and with it guard.json, changes after a third
// of the lease, or with the mode.
func (g *loaded) renew(c Control, now time.Time) error {
	if err := g.SetControl(c); err != nil {
		return fmt.Errorf("renew the guard: %w", err)
	}
	moved := now.Add(c.Lease).Sub(g.deadline)
	if g.control.Mode != c.Mode || g.control.FirstUID != c.FirstUID || moved <= -tick/2 || moved >= c.Lease/3 {
		g.control, g.deadline = c, now.Add(c.Lease)
	}
	return nil
}

// Kernel is the guard in the kernel: see kernel.Guard.
type Kernel interface {
	SetMinors(guarded Minors) error
	SetAllowed(allowed map[snapshot.UID]Minors) error
	SetControl(control Control) error
	State() (KernelState, error)
	Events(ctx context.Context, handle func(Event)) error
	Close() error
}

// Errors of a Kernel by what the caller does about them.
var (
	// ErrFull: there are more users than the guard has room for; those who did not fit
	// have no permission. Don't use Enforce.
	ErrFull = errors.New("too many users for the kernel guard")
	// ErrRemoved: somebody removed the guard since Open, by hand or with Remove, and every
	// open is allowed. Stop, or Open again if the administrator wants it.
	ErrRemoved = errors.New("the kernel guard was removed")
)

// Control is what the guard does, and for how long.
type Control struct {
	Mode Mode
	// Lease is how long from now the guard acts. Then it lets everything through, until
	// the next SetControl. 0 ends it now.
	Lease time.Duration
	// FirstUID is the first uid that is guarded; users below it, and root, are never denied. It is not 0.
	FirstUID snapshot.UID
}

// KernelState is what the guard in the kernel does at this moment.
type KernelState struct {
	Control        // Lease is what is left of it
	Dir     string // of the pins; empty if there are none
	Allowed map[snapshot.UID]Minors
	// Lost is how many events there was no room for since the guard began.
	Lost uint64
}

// EventKind is what the guard did about an open.
type EventKind uint16

// The kinds of events.
const (
	Denied    EventKind = iota + 1 // the open failed with EPERM
	WouldDeny                      // the open was allowed only since the mode is watch
	Opened                         // an allowed open
)

// Event is an open of a guarded device, or access(2) with R_OK or W_OK: by an ordinary user, or if it is Opened also by
// root. At most ten a second are reported of a kind, user (of Opened, process where it is known) and device.
type Event struct {
	Kind  EventKind
	UID   snapshot.UID // real, in the initial user namespace
	PID   snapshot.PID // of the process, in the initial PID namespace; 0 if the kernel doesn't report it
	Minor int
}
