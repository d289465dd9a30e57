package nvidiasmi

import (
	"context"
	"errors"
	"strings"
	"time"
)

// Time is when an answer was given. It is the zero Time where that isn't known.
type Time struct {
	Began, Ended time.Time // the call
	Late         bool      // Late says that a newer answer didn't come in time
}

// reply is what came of a call.
type reply struct {
	RunResult
	Time
	err error
}

// question is what is known about the calls with the same arguments.
type question struct {
	outstanding *call  // nil for none
	last        *reply // nil for none
}

// call is one that goes on without those who wait for it.
type call struct {
	wanted time.Time
	done   chan struct{} // closed when it has returned
	reply                // valid then
}

// longestCall is for how long a call may go on that outlives its caller.
const longestCall = 2 * time.Minute

// Keep has calls go on until ctx ends when those who wait give up, and keeps their answers for the next ones: a driver
// that needs longer is slow, not without an answer. At most one call for each question is outstanding. It is called
// before the first question; end ends the calls, as far as the kernel allows.
func (q *Querier) Keep(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	for _, one := range []*Querier{q, q.details} {
		one.questions = map[string]*question{}
		one.keep = func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, longestCall) }
	}
	return func() {
		cancel()
		waited, stop := context.WithTimeout(context.Background(), killTime)
		defer stop()
		for _, one := range []*Querier{q, q.details} {
			if one.take(waited) == nil { // what hangs is left to the kernel
				<-one.turn
			}
		}
	}
}

type withoutCall struct{}

// WithoutCall has a Querier make no new call: earlier answers serve, or the error is ErrTimeout.
func WithoutCall(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutCall{}, true)
}

// MayCall says whether ctx isn't one of WithoutCall.
func MayCall(ctx context.Context) bool { return ctx.Value(withoutCall{}) == nil }

// ask returns the answer of a call that began after ask was called. If none comes in time, it returns the last answer,
// unless that is older than oldest. The call goes on also if ctx has ended already.
func (q *Querier) ask(ctx context.Context, args []string, oldest time.Duration) reply {
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, 2*q.timeout)
	defer cancel()
	for {
		call := q.outstanding(args)
		var tooLong <-chan time.Time // a look doesn't wait for what hangs
		if oldest > 0 {
			tooLong = time.After(q.timeout - time.Since(call.wanted))
		}
		select {
		case <-call.done:
		case <-tooLong:
			return q.earlier(args, oldest, ErrTimeout)
		case <-ctx.Done():
			return q.earlier(args, oldest, timeoutOf(ctx))
		}
		switch {
		case call.Began.Before(asked) && !call.Began.IsZero(): // it may not know what has happened since
		case errors.Is(call.err, ErrTimeout), errors.Is(call.err, ErrHung):
			return q.earlier(args, oldest, call.err)
		default:
			return call.reply
		}
	}
}

// earlier is the last answer where why keeps a newer one from coming.
func (q *Querier) earlier(args []string, oldest time.Duration, why error) reply {
	q.mu.Lock()
	defer q.mu.Unlock()
	last := q.question(args).last
	if last == nil || errors.Is(why, context.Canceled) || time.Since(last.Began) > oldest {
		return reply{err: why}
	}
	late := *last
	late.Late = true
	return late
}

// question is the one with these arguments; q.mu is held.
func (q *Querier) question(args []string) *question {
	key := strings.Join(args, " ")
	if q.questions[key] == nil {
		q.questions[key] = &question{}
	}
	return q.questions[key]
}

// outstanding is the outstanding call for a question, which is begun if there is none.
func (q *Querier) outstanding(args []string) *call {
	q.mu.Lock()
	defer q.mu.Unlock()
	question := q.question(args)
	if question.outstanding != nil {
		return question.outstanding
	}
	begun := &call{wanted: time.Now(), done: make(chan struct{})}
	question.outstanding = begun
	go func() {
		ctx, cancel := q.keep()
		defer cancel()
		begun.reply = q.run(ctx, args)
		q.mu.Lock()
		defer q.mu.Unlock()
		if question.outstanding = nil; begun.err == nil {
			question.last = &begun.reply
		}
		close(begun.done)
	}()
	return begun
}
