// Package nvidiasmi asks nvidia-smi for devices and the processes that use them.
//
//	path, err := nvidiasmi.Find(os.Getenv("PATH"), self)
//	querier := nvidiasmi.New(nvidiasmi.Exec{Path: path}, 10*time.Second)
//	usage, err := querier.Apps(ctx, 0)
//	if errors.Is(err, nvidiasmi.ErrHung) {
//		// the driver of this machine hangs: try again later
//	}
//
// A defective GPU can block nvidia-smi in the kernel for minutes, even against SIGKILL. So a Querier has at most one
// call in progress: its caller gets ErrTimeout at the deadline, later callers ErrHung until it returns. A lock file
// (Exec.Lock) extends this to all genv processes. Details have a call and a lock of their own: if they hang, the others
// still work.
//
// The parsers are pure. A value that the driver does not report, such as "[N/A]", is unknown and never 0. Sources:
// nvidia-smi(1), and the output of drivers.
package nvidiasmi

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Runner runs nvidia-smi. An error, not an exit code, means that it did not run, or that its output is incomplete.
type Runner interface {
	Run(ctx context.Context, args ...string) (RunResult, error)
}

// RunResult is the result of one call.
type RunResult struct {
	Stdout, Stderr []byte
	ExitCode       int
}

// DefaultTimeout suffices for 8 GPUs without persistence mode, which take up to 3 s each. A controller waits 30 s for
// the whole command.
const DefaultTimeout = 25 * time.Second

// Querier runs nvidia-smi, one call at a time, and one for Details. It is safe for concurrent use.
type Querier struct {
	details *Querier // for Details; nil in itself

	runner  Runner
	timeout time.Duration
	keep    func() (context.Context, context.CancelFunc) // context of calls that outlive their callers; nil for none
	turn    chan struct{}                                // semaphore of calls
	modes   DeviceQuery
	calling atomic.Pointer[context.Context] // of the call in progress; nil for none

	mu        sync.Mutex
	questions map[string]*question // by their arguments
}

// New returns a Querier. Methods return within timeout (0: DefaultTimeout), after Keep within twice that.
func New(runner Runner, timeout time.Duration) *Querier {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	one := func() *Querier {
		return &Querier{
			runner: runner, timeout: timeout, turn: make(chan struct{}, 1), questions: map[string]*question{},
		}
	}
	q := one()
	q.details = one()
	return q
}

// query runs nvidia-smi and parses its answer. If none comes until ctx ends, or within the timeout, it takes an earlier
// one not older than oldest; 0 for none.
func query[T any](ctx context.Context, q *Querier, args []string, oldest time.Duration,
	parse func(RunResult) (T, error),
) (parsed T, at Time, err error) {
	var out reply
	switch {
	case !MayCall(ctx):
		out = q.earlier(args, oldest, ErrTimeout)
	case q.keep != nil:
		out = q.ask(ctx, args, oldest)
	default:
		limited, cancel := context.WithTimeout(ctx, q.timeout)
		defer cancel()
		ended := make(chan reply, 1)
		go q.run(limited, args, func(r reply) { ended <- r })
		out = <-ended
	}
	if out.err != nil {
		return parsed, out.Time, out.err
	}
	if parsed, err = parse(out.RunResult); err != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.question(args).last = nil
	}
	return parsed, out.Time, err
}

// run makes a call, which may outlast ctx. It calls ended once, with the answer or at the end of ctx.
func (q *Querier) run(ctx context.Context, args []string, ended func(reply)) {
	if err := q.take(ctx); err != nil {
		ended(reply{err: err})
		return
	}
	q.calling.Store(&ctx)
	inTime := context.AfterFunc(ctx, func() { ended(reply{err: timeoutOf(ctx)}) })
	began := time.Now()
	result, err := q.runner.Run(ctx, args...)
	q.calling.Store(nil)
	<-q.turn
	if inTime() {
		ended(reply{result, Time{Began: began, Ended: time.Now()}, err})
	}
}

// ofCall is closed when no caller waits for the call in progress any more; nil for none.
func (q *Querier) ofCall() <-chan struct{} {
	if ctx := q.calling.Load(); ctx != nil {
		return (*ctx).Done()
	}
	return nil
}

const killTime = time.Second // after SIGKILL, until a process counts as hanging in the kernel

// take waits until no call is in progress, but only killTime for an abandoned one. The error is ErrHung or ctx's cause.
func (q *Querier) take(ctx context.Context) error {
	inProgress := q.ofCall()
	abandoned, hangs := inProgress, (<-chan time.Time)(nil)
	for {
		select {
		case q.turn <- struct{}{}:
			return nil
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return ErrHung
			}
			return context.Cause(ctx)
		case <-abandoned:
			abandoned, hangs = nil, time.After(killTime)
		case <-hangs:
			now := q.ofCall()
			if now == inProgress {
				return ErrHung
			}
			inProgress, abandoned, hangs = now, now, nil // another call has followed
		}
	}
}

func timeoutOf(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return text.Worded(ErrTimeout.Error(), ErrTimeout, context.DeadlineExceeded)
	}
	return context.Cause(ctx)
}

// Time is the time of an answer; zero if unknown.
type Time struct {
	Began, Ended time.Time // the call
	Late         bool      // a newer answer didn't come in time
}

type reply struct {
	RunResult
	Time
	err error
}

type question struct {
	outstanding *call  // nil for none
	last        *reply // nil for none
}

// call outlasts its callers.
type call struct {
	wanted time.Time
	done   chan struct{} // closed at its return
	reply                // valid then
}

// Keep lets calls, one for each question, outlast their callers until ctx ends, and keeps their answers for the next
// ones: a slow driver still answers. Call it before the first question. end ends the calls, if the kernel allows it.
func (q *Querier) Keep(ctx context.Context) (end func()) {
	const longestCall = 2 * time.Minute
	ctx, cancel := context.WithCancel(ctx)
	for _, one := range []*Querier{q, q.details} {
		one.keep = func() (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, longestCall) }
	}
	return func() {
		cancel()
		waited, stop := context.WithTimeout(context.Background(), killTime)
		defer stop()
		for _, one := range []*Querier{q, q.details} {
			if one.take(waited) == nil { // a hanging call is left to the kernel
				<-one.turn
			}
		}
	}
}

type withoutCall struct{}

// WithoutCall prevents new calls of a Querier: earlier answers serve, or the error is ErrTimeout.
func WithoutCall(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutCall{}, true)
}

// MayCall is false for a context of WithoutCall.
func MayCall(ctx context.Context) bool { return ctx.Value(withoutCall{}) == nil }

// ask returns the answer of a call that begins after it, else the last one not older than oldest. The call continues
// even if ctx has ended already.
func (q *Querier) ask(ctx context.Context, args []string, oldest time.Duration) reply {
	asked := time.Now()
	for {
		call := q.outstanding(args)
		wait := 2*q.timeout - time.Since(asked)
		if oldest > 0 { // a look doesn't wait for a hanging call
			wait = min(wait, q.timeout-time.Since(call.wanted))
		}
		select {
		case <-call.done:
		case <-time.After(wait):
			return q.earlier(args, oldest, ErrTimeout)
		case <-ctx.Done():
			return q.earlier(args, oldest, timeoutOf(ctx))
		}
		switch {
		case call.Began.Before(asked) && !call.Began.IsZero(): // it may lack what happened since
		case errors.Is(call.err, ErrTimeout), errors.Is(call.err, ErrHung):
			return q.earlier(args, oldest, call.err)
		default:
			return call.reply
		}
	}
}

// earlier returns the last answer, or why, which prevents a newer one.
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

// question returns the one with these arguments; q.mu must be held.
func (q *Querier) question(args []string) *question {
	key := strings.Join(args, " ")
	if q.questions[key] == nil {
		q.questions[key] = &question{}
	}
	return q.questions[key]
}

func (q *Querier) outstanding(args []string) *call {
	q.mu.Lock()
	defer q.mu.Unlock()
	question := q.question(args)
	if question.outstanding != nil {
		return question.outstanding
	}
	begun := &call{wanted: time.Now(), done: make(chan struct{})}
	question.outstanding = begun
	ctx, cancel := q.keep()
	go q.run(ctx, args, func(r reply) {
		cancel()
		q.mu.Lock()
		defer q.mu.Unlock()
		begun.reply = r
		if question.outstanding = nil; begun.err == nil {
			question.last = &begun.reply
		}
		close(begun.done)
	})
	return begun
}
