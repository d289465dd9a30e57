package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// loaded is the guard in the kernel while this Keeper has it open, and what was written to
// it last.
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
func (s *session) open(ctx context.Context) (*loaded, error) {
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
		if err := k.Events(reading, s.denier.take); err != nil && reading.Err() == nil {
			s.Log.Error().Err(err).Msg("denials can't be read")
		}
	}()
	g.stop = func() { stop(); <-ended }
	return g, nil
}

// release gives up the guard in the kernel and leaves it as it is.
func (s *session) release() {
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

// write writes a plan to the kernel, as far as it differs: permissions before what they
// are exceptions from. Allowed opens of guarded devices are reported, too.
func (g *loaded) write(p access) (changed bool, err error) {
	if !g.planned || !maps.Equal(g.plan.Allowed, p.Allowed) {
		err := g.SetAllowed(p.Allowed)
		if g.full = errors.Is(err, ErrFull); err != nil && !g.full {
			return false, err
		}
		changed = true
	}
	if !g.planned || g.plan.Guarded != p.Guarded {
		if err := g.SetMinors(p.Guarded, p.Guarded); err != nil {
			return changed, err
		}
		changed = true
	}
	g.plan, g.planned = p, true
	return changed, nil
}

// renew sets mode and lease in the kernel. notable says that guard.json is to be written: the
// mode is new, or a third of the lease is over.
func (g *loaded) renew(c Control, now time.Time) (notable bool, err error) {
	if err := g.SetControl(c); err != nil {
		return false, fmt.Errorf("renew the guard's lease: %w", err)
	}
	was, ended := g.control, g.deadline
	deadline := now.Add(c.Lease)
	moved := deadline.Sub(ended)
	if was.Mode == c.Mode && was.FirstUID == c.FirstUID && moved > -tick/2 && moved < c.Lease/3 {
		return false, nil
	}
	g.control, g.deadline = c, deadline
	return true, nil
}
