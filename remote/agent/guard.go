package agent

import (
	"context"

	"github.com/seed-3119e985/genv/remote"
)

// Guard is the kernel guard of a host.
type Guard interface {
	// Order gives or renews an order and says what the guard does. It must be quick: other
	// requests wait for it.
	Order(ctx context.Context, request GuardRequest) (GuardAnswer, error)
}

func (a *Answers) guard(ctx context.Context, request GuardRequest) (GuardAnswer, error) {
	if a.Guard == nil {
		return GuardAnswer{}, ErrCannotGuard
	}
	if err := a.admit(a.claim); err != nil {
		return GuardAnswer{}, err
	}
	return a.Guard.Order(ctx, request)
}

// Guard gives or renews a host's order for its kernel guard. The error is
// ErrCannotGuard if the genv there knows no guard. It is not worth a login.
func (p *Pool) Guard(ctx context.Context, host remote.Host, request GuardRequest) (answer GuardAnswer, err error) {
	leave, err := p.beginCall()
	if err != nil {
		return answer, err
	}
	defer leave()
	c := p.conn(host)
	c.mu.Lock()
	t, ok := c.transport.(*streamTransport)
	lost := c.transport == nil
	c.mu.Unlock()
	switch {
	case lost:
		return answer, remote.Errorf(remote.Unreachable, "%s was lost before the guard was asked", host.Name)
	case !ok || !t.can().Guard:
		return answer, ErrCannotGuard
	}
	return call(ctx, c, t, p.Timeout, func(ctx context.Context) (GuardAnswer, error) {
		var answer GuardAnswer
		err := t.call(ctx, RequestGuard, request, &answer)
		return answer.Bounded(), err
	})
}
