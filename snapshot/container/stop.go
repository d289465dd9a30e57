package container

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Stopper stops containers; Engines are one.
type Stopper interface {
	Stop(ctx context.Context, place proc.Place, grace time.Duration) error
}

// Running is a container whose first process was found to run.
type Running struct {
	place proc.Place
	// Text names the container, safe to show, as in "container web (pytorch:24.10)".
	Text string
}

// ErrNotInit means that a process is not, or not any more, the first one of a container of
// root's.
var ErrNotInit = errors.New("it is not the first process of a container")

// askInit is for how long an engine is asked for a container that is to be stopped.
const askInit = 5 * time.Second

// Init returns the container that has this process as its first one now. Nothing is taken
// from what was known before. Its error wraps ErrNotInit, or one of Engines.Inspect or of package proc.
func (s *Source) Init(ctx context.Context, pid snapshot.PID) (Running, error) {
	h, err := s.Proc.Open(pid)
	if err != nil {
		return Running{}, err
	}
	defer func() { _ = h.Close() }() // it was only read
	credentials, err := h.Credentials()
	if err != nil {
		return Running{}, err
	}
	_, rootless := h.OwnerOfUID(credentials.UID, s.Proc.UserNamespace())
	m := Member{PID: pid, Place: h.Container(credentials), Rootless: rootless}
	if !m.inspectable() {
		return Running{}, ErrNotInit
	}
	ctx, cancel := context.WithTimeout(ctx, askInit)
	defer cancel()
	details, err := s.Engines.Inspect(ctx, m.Place)
	switch {
	case errors.Is(err, ErrNotFound), err == nil && details.Init != pid:
		return Running{}, ErrNotInit
	case err != nil:
		return Running{}, err
	}
	process := snapshot.Process{Container: m.Place.ID, ContainerInfo: &snapshot.ContainerInfo{Name: details.Name, Image: details.Image}}
	return Running{place: m.Place, Text: process.ContainerName()}, nil
}

// Stop has the engine of a container stop it: the container's own signal, the grace, then
// SIGKILL. It returns when the container has stopped. The caller makes sure that the first
// process is still the one that Init found. Its error wraps one of Engines.Stop.
func (s *Source) Stop(ctx context.Context, r Running, grace time.Duration) error {
	if err := s.Stopper.Stop(ctx, r.place, grace); err != nil {
		return fmt.Errorf("stop %s: %w", r.Text, err)
	}
	return nil
}
