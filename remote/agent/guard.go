package agent

import (
	"context"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/guarding"
)

// Guard is the kernel guard of a host.
type Guard interface {
	// Order gives or renews an order and says what the guard does. It must be quick: other
	// requests wait for it.
	Order(ctx context.Context, request guarding.Request) (guarding.Answer, error)
}

func (a *Answers) guard(ctx context.Context, request guarding.Request) (guarding.Answer, error) {
	if a.Guard == nil {
		return guarding.Answer{}, guarding.ErrCannotGuard
	}
	if err := a.admit(a.claim); err != nil {
		return guarding.Answer{}, err
	}
	return a.Guard.Order(ctx, request)
}

// Guard gives or renews a host's order for its kernel guard. The error is
// guarding.ErrCannotGuard if the genv there knows no guard. It is not worth a login.
func (p *Pool) Guard(ctx context.Context, host remote.Host, request guarding.Request) (answer guarding.Answer, err error) {
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
		return answer, guarding.ErrCannotGuard
	}
	return call(ctx, c, t, p.Timeout, func(ctx context.Context) (guarding.Answer, error) {
		var answer guarding.Answer
		err := t.call(ctx, guarding.Name, request, &answer)
		return answer.Bounded(), err
	})
}
