// Package nvidiasmi asks nvidia-smi which devices there are and which processes use
// them.
//
//	path, err := nvidiasmi.Find(os.Getenv("PATH"), self)
//	querier := nvidiasmi.New(nvidiasmi.Exec{Path: path}, 10*time.Second)
//	usage, err := querier.Apps(ctx, 0)
//	if errors.Is(err, nvidiasmi.ErrHung) {
//		// the driver of this machine hangs: try again later
//	}
//
// A defective GPU can block nvidia-smi in the kernel for minutes, where even SIGKILL
// does not end it. So a Querier has at most one call in progress: its caller gets
// ErrTimeout at the deadline, and later callers get ErrHung until the call returns. A
// lock file (Exec.Lock) extends this to all genv processes of the machine, even after
// the one that started the call was killed. A call for Details, which reads more of the
// driver and of processes, has a place and a lock of its own: if it hangs, the others go on.
//
// The parsers are pure. A value that the driver does not report, such as "[N/A]", is
// unknown and never 0. The package does not read /proc and does not know users: that is
// the work of snapshot/local.
//
// The facts are from nvidia-smi(1) and from the output of drivers.
package nvidiasmi

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Runner runs nvidia-smi. An exit code other than 0 is not an error of Run. Its errors
// mean that nvidia-smi did not run or that its output is incomplete; they are errors of
// this package or the context's.
type Runner interface {
	Run(ctx context.Context, args ...string) (RunResult, error)
}

// RunResult is the result of one call.
type RunResult struct {
	Stdout, Stderr []byte
	ExitCode       int
}

// DefaultTimeout is sufficient for 8 GPUs without persistence mode, where a call takes up
// to 3 seconds for each GPU. A controller waits 30 s for the whole command.
const DefaultTimeout = 25 * time.Second

// Querier runs nvidia-smi, one call at a time, and one for Details. It is safe for concurrent use.
type Querier struct {
	details *Querier // for Details; nil in itself

	runner  Runner
	timeout time.Duration
	keep    func() (context.Context, context.CancelFunc) // of calls that outlive their caller; nil for none

	mu        sync.Mutex
	current   *call                // nil if none is in progress
	questions map[string]*question // by their arguments
}

// call is one run of nvidia-smi.
type call struct {
	done      chan struct{}   // closed when it has returned
	abandoned <-chan struct{} // closed when its caller no longer waits for it

	// Valid once done is closed.
	result RunResult
	err    error
}

// New returns a Querier. A method returns within timeout, or within twice that after Keep, even if
// nvidia-smi does not; 0 is DefaultTimeout.
func New(runner Runner, timeout time.Duration) *Querier {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return &Querier{runner: runner, timeout: timeout, details: &Querier{runner: runner, timeout: timeout}}
}

// query runs nvidia-smi and parses its answer. Where no new answer comes until ctx ends, or within the timeout, an
// earlier one serves that is at most as old as oldest; 0 for none.
func query[T any](ctx context.Context, q *Querier, args []string, oldest time.Duration, parse func(RunResult) (T, error)) (T, Time, error) {
	var out timedReply
	var err error
	if q.keep != nil {
		out, err = q.ask(ctx, args, oldest)
	} else {
		limited, cancel := context.WithTimeout(ctx, q.timeout)
		defer cancel()
		out, err = q.run(limited, args)
	}
	var parsed T
	if err == nil {
		if parsed, err = parse(out.result); err != nil {
			q.forget(args)
		}
	}
	return parsed, out.Time, err
}

func (q *Querier) run(ctx context.Context, args []string) (timedReply, error) {
	run, err := q.begin(ctx)
	if err != nil {
		return timedReply{}, err
	}
	began := time.Now()
	go func() {
		run.result, run.err = q.runner.Run(ctx, args...)
		q.end(run)
	}()
	select {
	case <-run.done:
	case <-ctx.Done():
		return timedReply{}, contextError(ctx)
	}
	if run.err != nil && ctx.Err() != nil {
		return timedReply{}, contextError(ctx)
	}
	return timedReply{run.result, Time{Began: began, Ended: time.Now()}}, run.err
}

// contextError is the error of a call after its context has ended.
func contextError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return lateError{}
	}
	return context.Cause(ctx)
}

// lateError is ErrTimeout, and is also known as the end of a deadline.
type lateError struct{}

func (lateError) Error() string   { return ErrTimeout.Error() }
func (lateError) Unwrap() []error { return []error{ErrTimeout, context.DeadlineExceeded} }

// begin waits until no call is in progress, and registers the next one.
func (q *Querier) begin(ctx context.Context) (*call, error) {
	next := &call{done: make(chan struct{}), abandoned: ctx.Done()}
	for {
		before := q.tryBegin(next)
		if before == nil {
			return next, nil
		}
		if err := before.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// tryBegin registers a call, or returns the one that is in progress.
func (q *Querier) tryBegin(next *call) (before *call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.current == nil {
		q.current = next
		return nil
	}
	return q.current
}

// killTime is how long after SIGKILL a process counts as one that hangs in the kernel.
const killTime = time.Second

// wait waits until a call returns: until the context ends, or only for killTime if the
// call was abandoned.
func (r *call) wait(ctx context.Context) error {
	select {
	case <-r.abandoned:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, killTime)
		defer cancel()
	default:
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return ErrHung
		}
		return context.Cause(ctx)
	}
}

func (q *Querier) end(run *call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.current = nil
	close(run.done)
}
