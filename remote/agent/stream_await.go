package agent

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Await is Call without a goroutine that waits: done is called once, in one of its own, with the
// answer or the error. When limit has passed without an answer, the stream is broken. Several
// thousand calls that take minutes need little memory so. The host must have CapabilityParallel.
func (s *Stream) Await(ctx context.Context, limit time.Duration, name string, body []byte, done func([]byte, error)) {
	a := &awaited{done: done}
	f, err := newRequest(ctx, name, body)
	if err == nil {
		err = s.begin(ctx, f, a.answer)
	}
	if err != nil {
		go done(nil, fmt.Errorf("%w: %w", ErrNotSent, err))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !a.over {
		a.late = time.AfterFunc(limit, func() { s.giveUp(f.id, context.DeadlineExceeded) })
		a.forget = context.AfterFunc(ctx, func() { s.giveUp(f.id, context.Cause(ctx)) })
	}
}

// awaited is a call of Await. The mutex of the Stream guards it.
type awaited struct {
	done   func([]byte, error)
	over   bool
	late   *time.Timer
	forget func() bool
}

func (a *awaited) answer(r reply) {
	a.over = true
	if a.late != nil {
		a.late.Stop()
		a.forget()
	}
	go a.done(r.body, r.err)
}

// giveUp ends a call that is still under way, as Call does when its ctx ends.
func (s *Stream) giveUp(id uint64, why error) {
	hangs := errors.Is(why, context.DeadlineExceeded)
	if !hangs {
		why = fmt.Errorf("%w: %w", errAbandoned, why)
	}
	if s.drop(id, why) && hangs {
		s.fail(why)
	}
}

// drop ends a call, and has its answer not wanted any more; false if it has come.
func (s *Stream) drop(id uint64, why error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := s.calls[id]
	if answer == nil {
		return false
	}
	s.calls[id] = nil
	answer(reply{err: why})
	return true
}
