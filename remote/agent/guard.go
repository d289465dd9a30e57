package agent

import (
	"context"
	"errors"
	"slices"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// RequestGuard is the name of the request, and the capability of hosts that understand it. Such a
// host may still have a kernel without a guard: its answer says so.
const RequestGuard = "guard"

// ErrCannotGuard means that the genv on the host knows no guard. Poll it.
var ErrCannotGuard = errors.New("genv on this host knows no kernel guard")

// GuardPrefix begins the IDs of the orders of controllers. An order without it was given on the host itself.
const GuardPrefix = "controller "

// GuardRequest gives or renews an order.
type GuardRequest struct {
	// ID names the controller, with GuardPrefix: its orders are one that is renewed.
	ID string `json:"id"`
	// Order with the mode off ends the order of this controller only.
	Order guard.Order `json:"order"`
}

// GuardAnswer is what the guard does.
type GuardAnswer struct {
	State GuardState `json:"state"`
}

// GuardState is what the guard of a host does. A new order may take a second to show.
type GuardState struct {
	Mode   guard.Mode `json:"mode"` // of the kernel at this moment
	LeftMS int64      `json:"left_ms,omitempty"`
	// Reason is why the mode is not the one that was ordered; empty if it is, or if the order is too new to tell.
	Reason string `json:"reason,omitempty"`
	// Problems are what an administrator has to know, a line each.
	Problems []string `json:"problems,omitempty"`
	// Denied is how many opens were denied within the last hour, or would have been in mode enforce. Who and
	// when is known on the host.
	Denied uint64 `json:"denied,omitempty"`
}

// The bounds of what is kept of an answer.
const (
	maxText     = 1024 // bytes
	maxProblems = 16
)

// Bounded is an answer as far as a controller believes it: a host may say anything.
func (a GuardAnswer) Bounded() GuardAnswer {
	line := func(said string) string { return text.Cut(text.OneLine(text.Cut(said, maxText)), maxText) }
	s := &a.State
	if !s.Mode.Valid() {
		s.Mode = guard.Off
	}
	s.Reason = line(s.Reason)
	s.Problems = slices.Clone(s.Problems[:min(len(s.Problems), maxProblems)])
	for i, p := range s.Problems {
		s.Problems[i] = line(p)
	}
	return a
}

func (a *Answers) guard(ctx context.Context, request GuardRequest) (GuardAnswer, error) {
	if a.Guard == nil {
		return GuardAnswer{}, ErrCannotGuard
	}
	if err := a.admit(a.lease); err != nil {
		return GuardAnswer{}, err
	}
	return a.Guard(ctx, request)
}

// Guard gives or renews a host's order for its kernel guard. The error is
// ErrCannotGuard if the genv there knows no guard. It is not worth a login.
func (p *Pool) Guard(ctx context.Context, host remote.Host, order GuardRequest) (GuardAnswer, error) {
	return onConn(p, host, func(c *Conn) (answer GuardAnswer, err error) {
		t, connected := c.streamWith(RequestGuard)
		switch {
		case !connected:
			return answer, remote.Errorf(remote.Unreachable, "%s was lost before the guard was asked", host.Name)
		case t == nil:
			return answer, ErrCannotGuard
		}
		answer, err = request[GuardAnswer](ctx, c, t, p.Timeout, RequestGuard, order)
		return answer.Bounded(), err
	})
}
