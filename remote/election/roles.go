package election

import (
	"context"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote"
)

// Term is by what right a leader acts: an epoch of a cluster of etcd. The zero Term is that of a
// controller that doesn't lead.
type Term struct {
	Epoch, Cluster uint64
}

// Roles is what a controller does in an election.
type Roles struct {
	// Stand is called while the controller doesn't lead, and Lead for each term in which it does. Their
	// contexts end with it. That of Lead may begin nothing (see remote.MayBegin) from the moment on
	// at which another controller may lead, also if this program was stopped and hasn't noticed yet.
	Stand func(context.Context) error
	Lead  func(context.Context, Term) error
	// Changed is called when the role, the epoch, the leader or whether etcd answers has changed.
	Changed func(Status)
}

// ErrNotLeading is why a controller that was replaced sends nothing any more.
var ErrNotLeading = remote.Errorf(remote.Cancelled, "not sent: this controller doesn't lead any more")

// errElected is why a standby that has to act waits for no host any more: hosts that hang have had
// their time, and are not waited for again before they answer.
var errElected = remote.Errorf(remote.Timeout, "it didn't answer before this controller had to act: %w", remote.ErrLate)

// resignAfter bounds how long a leader keeps leading after its run was stopped, so that it can
// store the results of messages under way for the next leader.
const resignAfter = 4 * time.Second

// Run campaigns, and calls what the roles of this controller are, until ctx ends or one of them returns before it is
// over, and returns its error. A leader resigns after that: what it does then can still be stored for the next one.
func (e *Elector) Run(ctx context.Context, roles Roles) error {
	longer, resign := remote.Outlasting(ctx, resignAfter)
	var campaign sync.WaitGroup
	campaign.Go(func() { e.Campaign(longer) })
	defer campaign.Wait()
	defer resign()
	for {
		turned, err := e.follow(ctx, e.term(), roles)
		if !turned || ctx.Err() != nil {
			return err
		}
	}
}

// follow calls one role, until the term is another one.
func (e *Elector) follow(ctx context.Context, term Term, roles Roles) (turned bool, err error) {
	why := errElected
	if term != (Term{}) {
		why = ErrNotLeading
	}
	during, end := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { e.watch(during, term, roles.Changed, func() { end(why) }) })
	if term == (Term{}) {
		err = roles.Stand(during)
	} else {
		err = roles.Lead(remote.While(during, func() error {
			if e.LeadsWith(term.Epoch) {
				return nil
			}
			return ErrNotLeading
		}), term)
	}
	turned = during.Err() != nil || e.term() != term // it may not have been noticed yet
	end(nil)
	watch.Wait()
	return turned, err
}

// watch calls end when the term is another one.
func (e *Elector) watch(ctx context.Context, term Term, changed func(Status), end func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.changed:
		}
		changed(e.Status())
		if e.term() != term {
			end()
			return
		}
	}
}

// term is that in which this controller leads now.
func (e *Elector) term() Term {
	s := e.Status()
	if s.Role != Leading {
		return Term{}
	}
	return Term{s.Epoch, s.Cluster}
}
