package service

import (
	"context"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/container/rootless"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// Containers gives devices to containers of users' own engines, as rootless.Host does.
type Containers interface {
	Do(ctx context.Context, a rootless.Asked, by rootless.Asker) (grant.Granted, error)
}

// container is for the runtimes of users' own engines. What it does is for the user for whom
// the process that asks counts, whatever uid it has in its namespace.
func (s *Server) container(ctx context.Context, asked rootless.Asked, by peer) Answer {
	switch {
	case by.unknown != nil:
		return failure(by.unknown)
	case s.Containers == nil || by.account == 0:
		return failure(fmt.Errorf("%w: this is for the container engines of users", state.ErrRequest))
	}
	named := &processes{fs: s.Proc, by: by, held: map[snapshot.PID]*proc.Handle{}}
	defer named.close()
	granted, err := s.Containers.Do(ctx, asked, rootless.Asker{
		UID: by.account, PID: by.pid,
		Owner: func(pid snapshot.PID) (snapshot.UID, error) {
			if _, err := named.owner(pid); err != nil {
				return 0, err
			}
			account, err := named.held[pid].Owner()
			return s.owner(account), err
		},
		Turn: func(ctx context.Context) (func(), error) { return s.turns.take(ctx, by.account) },
	})
	if err != nil {
		return failure(err)
	}
	return Answer{Granted: &granted}
}

// Container asks for a container of this user's own engine. The error is as Change's.
func (c Client) Container(ctx context.Context, asked rootless.Asked) (grant.Granted, error) {
	answer, err := c.ask(ctx, Request{Container: &asked})
	if err == nil && answer.Granted == nil {
		err = ErrUnknown
	}
	if err != nil {
		return grant.Granted{}, err
	}
	return *answer.Granted, nil
}
