package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// turns is a mutex that users take in turn: after one request of a user, the others who
// wait come first, however many requests the user has.
type turns struct {
	perUser int // requests of a user that may wait

	mu      sync.Mutex
	taken   bool
	waiting map[snapshot.UID][]chan struct{}
	order   []snapshot.UID // who waits, the next one first
}

// take waits for the turn of a user, and until ctx ends. Its error is a refused one if too
// many requests of the user wait already.
func (t *turns) take(ctx context.Context, uid snapshot.UID) (release func(), err error) {
	t.mu.Lock()
	if !t.taken {
		t.taken = true
		t.mu.Unlock()
		return t.next, nil
	}
	own := t.waiting[uid]
	if len(own) >= t.perUser {
		t.mu.Unlock()
		return nil, refused{uid}
	}
	if len(own) == 0 {
		t.order = append(t.order, uid)
	}
	if t.waiting == nil {
		t.waiting = map[snapshot.UID][]chan struct{}{}
	}
	turn := make(chan struct{})
	t.waiting[uid] = append(own, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return t.next, nil
	case <-ctx.Done():
		if !t.leave(uid, turn) { // the turn came meanwhile
			t.next()
		}
		return nil, ctx.Err()
	}
}

// next gives the turn to the next user.
func (t *turns) next() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		t.taken = false
		return
	}
	uid := t.order[0]
	t.order = t.order[1:]
	own := t.waiting[uid]
	close(own[0])
	if len(own) == 1 {
		delete(t.waiting, uid)
		return
	}
	t.waiting[uid] = own[1:]
	t.order = append(t.order, uid)
}

// leave says whether the request still waited.
func (t *turns) leave(uid snapshot.UID, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.waiting[uid]
	i := slices.Index(own, turn)
	if i < 0 {
		return false
	}
	if own = slices.Delete(own, i, i+1); len(own) > 0 {
		t.waiting[uid] = own
		return true
	}
	delete(t.waiting, uid)
	t.order = slices.DeleteFunc(t.order, func(u snapshot.UID) bool { return u == uid })
	return true
}

// issue makes a token for whoever asks. Whether the environment is that user's is looked at
// when the container starts: it may end until then.
func (s *Server) issue(eid snapshot.EnvID, by peer) Answer {
	if by.unknown != nil { // a container can have processes of any uid
		return failure(by.unknown)
	}
	text, err := s.tokens.Issue(grant.Holder{UID: by.account, EID: eid})
	if err != nil {
		return failure(err)
	}
	return Answer{Token: text}
}

// redeem is for root's container runtime alone.
func (s *Server) redeem(text string, by peer) Answer {
	if int(by.uid) != os.Geteuid() || by.unknown != nil {
		return failure(fmt.Errorf("%w: only root's container runtime redeems tokens", state.ErrNotOwner))
	}
	holder, ok := s.tokens.Redeem(text)
	if !ok {
		return failure(fmt.Errorf("%w: the token was used before, is too old, or isn't of this service", state.ErrRequest))
	}
	return Answer{Holder: &holder}
}

// Token asks for a token that proves who starts a container, in an environment or (if eid
// is empty) in one of its own.
func (c Client) Token(ctx context.Context, eid snapshot.EnvID) (string, error) {
	answer, err := c.ask(ctx, Request{Token: &TokenRequest{EID: eid}})
	if err == nil && answer.Token == "" {
		err = errors.New("the service gave no token")
	}
	return answer.Token, err
}

// Redeem returns for whom a container is started that has a token. The error wraps
// state.ErrRequest for one that proves nothing.
func (c Client) Redeem(ctx context.Context, text string) (grant.Holder, error) {
	if len(text) > grant.MaxToken {
		return grant.Holder{}, fmt.Errorf("%w: it is not a token", state.ErrRequest)
	}
	answer, err := c.ask(ctx, Request{Redeem: text})
	if err == nil && answer.Holder == nil {
		err = ErrUnknown
	}
	if err != nil {
		return grant.Holder{}, err
	}
	return *answer.Holder, nil
}
