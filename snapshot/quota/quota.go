// Package quota limits what one account takes of what all accounts of a host share, such as entries of a file or turns,
// so that others get their part.
//
//	if !quota.Leaves(own+n, all, most) {
//		return errFull
//	}
//	release, err := turns.Take(ctx, uid)
//
// It has no clock, and accounts are of any type.
package quota

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
)

const reserve = 8

// Leaves says whether an account that has own of most leaves enough to others, when all accounts have all: own may be
// an eighth of the rest.
func Leaves(own, all, most int) bool { return reserve*own <= most-all }

// Fair returns the most that each size may keep so that their sum is at most limit: small ones leave room to others.
func Fair(sizes []int, limit int) int {
	sizes = slices.Sorted(slices.Values(sizes))
	for i, size := range sizes {
		if share := limit / (len(sizes) - i); size > share {
			return share
		}
		limit -= size
	}
	return math.MaxInt
}

// ErrBusy says that too many requests of an account wait already.
var ErrBusy = errors.New("too many requests")

// Turns is a mutex that accounts take in turn, regardless of how many requests each has.
type Turns[A comparable] struct {
	Most int // waiting requests of an account

	mu      sync.Mutex
	taken   bool
	waiting map[A][]chan struct{}
	order   []A // waiting accounts, the next one first
}

// Take waits for an account's turn until ctx ends. The error is ctx's, or ErrBusy.
func (t *Turns[A]) Take(ctx context.Context, account A) (release func(), err error) {
	t.mu.Lock()
	if !t.taken {
		t.taken = true
		t.mu.Unlock()
		return t.next, nil
	}
	own := t.waiting[account]
	if len(own) >= t.Most {
		t.mu.Unlock()
		return nil, ErrBusy
	}
	if len(own) == 0 {
		t.order = append(t.order, account)
	}
	if t.waiting == nil {
		t.waiting = map[A][]chan struct{}{}
	}
	turn := make(chan struct{})
	t.waiting[account] = append(own, turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return t.next, nil
	case <-ctx.Done():
		if !t.leave(account, turn) { // the turn has come
			t.next()
		}
		return nil, ctx.Err()
	}
}

// Waiting counts the waiting requests.
func (t *Turns[A]) Waiting() (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, own := range t.waiting {
		n += len(own)
	}
	return n
}

func (t *Turns[A]) next() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == 0 {
		t.taken = false
		return
	}
	account := t.order[0]
	t.order = t.order[1:]
	own := t.waiting[account]
	close(own[0])
	if len(own) == 1 {
		delete(t.waiting, account)
		return
	}
	t.waiting[account] = own[1:]
	t.order = append(t.order, account)
}

func (t *Turns[A]) leave(account A, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := t.waiting[account]
	i := slices.Index(own, turn)
	if i < 0 {
		return false
	}
	if own = slices.Delete(own, i, i+1); len(own) > 0 {
		t.waiting[account] = own
		return true
	}
	delete(t.waiting, account)
	t.order = slices.DeleteFunc(t.order, func(a A) bool { return a == account })
	return true
}
