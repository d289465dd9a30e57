package service

import (
	"context"
	"slices"
	"sync"

	"github.com/seed-3119e985/genv/snapshot"
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
