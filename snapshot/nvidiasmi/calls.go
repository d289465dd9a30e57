package nvidiasmi

import (
	"context"
	"errors"
	"strings"
	"time"
)

// Age is how old an answer may be. The zero Age wants that of a new call.
type Age struct {
	// Good is for how long an answer serves without a new call.
	Good time.Duration
	// Most is how old an answer may be where no new call is answered in time.
	Most time.Duration
	// Until is when waiting for a new call ends; zero for the end of the context.
	Until time.Time
	// Since, if set, makes no new call: only the answer to one serves that began since then.
	Since time.Time
}

// Time is when an answer was given. It is the zero Time where that isn't known.
type Time struct {
	Began, Ended time.Time // the call
	// Late says that a newer answer didn't come in time.
	Late bool
}

// timedReply is what one call printed, and when.
type timedReply struct {
	result RunResult
	Time
}

// question is what is known about the calls with the same arguments.
type question struct {
	outstanding *outstanding // nil for none
	last        *timedReply  // nil for none
}

// outstanding is a call that goes on without those who wait for it.
type outstanding struct {
	wanted time.Time
	done   chan struct{} // closed when it has returned

	// Valid once done is closed.
	timedReply
	err error
}

// longestCall is for how long a call may go on that outlives its caller.
const longestCall = 2 * time.Minute

// Keep has calls go on when those who wait for them give up, until ctx ends, and keeps their
// answers for the next ones: a driver that needs more time than anybody waits is slow, and not
// without an answer. At most one call for each question is outstanding. Keep is called before
// the first question; end ends the calls, as far as the kernel allows that.
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
			one.mu.Lock()
			current := one.current
			one.mu.Unlock()
			if current != nil {
				_ = current.wait(waited) // what hangs is left to the kernel
			}
		}
	}
}

// ask returns the answer of a call that began after ask was called. If none comes in time, it
// returns the last answer, unless that is older than age.Most.
func (q *Querier) ask(ctx context.Context, args []string, age Age) (timedReply, error) {
	asked := time.Now()
	until := asked.Add(2 * q.timeout)
	if !age.Until.IsZero() && age.Until.Before(until) {
		until = age.Until
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if last := q.last(args); last != nil && asked.Sub(last.Began) <= age.Good {
		return *last, nil
	}
	for {
		call := q.outstanding(args)
		var tooLong <-chan time.Time // a look doesn't wait for what hangs
		if age.Most > 0 {
			tooLong = time.After(q.timeout - time.Since(call.wanted))
		}
		select {
		case <-call.done:
		case <-tooLong:
			return q.earlier(args, age, ErrTimeout)
		case <-ctx.Done():
			return q.earlier(args, age, contextError(ctx))
		}
		switch {
		case call.Began.Before(asked) && !call.Began.IsZero(): // it may not know what has happened since
		case errors.Is(call.err, ErrTimeout), errors.Is(call.err, ErrHung):
			return q.earlier(args, age, call.err)
		default:
			return call.timedReply, call.err
		}
	}
}

// earlier is the last answer where why keeps a newer one from coming.
func (q *Querier) earlier(args []string, age Age, why error) (timedReply, error) {
	last := q.last(args)
	if last == nil || errors.Is(why, context.Canceled) || time.Since(last.Began) > age.Most {
		return timedReply{}, why
	}
	late := *last
	late.Late = true
	return late, nil
}

// since is the last answer of a call that began since a time.
func (q *Querier) since(args []string, since time.Time) (timedReply, error) {
	if q.keep == nil {
		return timedReply{}, ErrTimeout
	}
	if last := q.last(args); last != nil && !last.Began.Before(since) {
		return *last, nil
	}
	return timedReply{}, ErrTimeout
}

func (q *Querier) last(args []string) *timedReply {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.question(args).last
}

// forget drops an answer that isn't understood.
func (q *Querier) forget(args []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.keep != nil {
		q.question(args).last = nil
	}
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
func (q *Querier) outstanding(args []string) *outstanding {
	q.mu.Lock()
	defer q.mu.Unlock()
	question := q.question(args)
	if question.outstanding != nil {
		return question.outstanding
	}
	call := &outstanding{wanted: time.Now(), done: make(chan struct{})}
	question.outstanding = call
	go func() {
		ctx, cancel := q.keep()
		defer cancel()
		call.timedReply, call.err = q.run(ctx, args)
		q.mu.Lock()
		defer q.mu.Unlock()
		question.outstanding = nil
		if call.err == nil {
			question.last = &call.timedReply
		}
		close(call.done)
	}()
	return call
}
