package nvidiasmi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Runner runs nvidia-smi. An exit code other than 0 is not an error of Run. Its errors
// mean that nvidia-smi did not run or that its output is incomplete; they are errors of
// this package or the context's.
type Runner interface {
	Run(ctx context.Context, args ...string) (Output, error)
}

// Output is the result of one call.
type Output struct {
	Stdout, Stderr []byte
	ExitCode       int
}

// DefaultTimeout is sufficient for 8 GPUs without persistence mode, where a call takes up
// to 3 seconds for each GPU.
const DefaultTimeout = 25 * time.Second

// Client runs nvidia-smi, one call at a time. It is safe for concurrent use.
type Client struct {
	runner  Runner
	timeout time.Duration

	mu      sync.Mutex
	current *call // nil if none is in progress
}

// call is one run of nvidia-smi.
type call struct {
	done      chan struct{} // closed when it has returned
	abandoned bool          // its caller no longer waits for it; guarded by Client.mu

	// Valid once done is closed.
	output Output
	err    error
}

// New returns a Client. No call of its methods takes longer than timeout, even if
// nvidia-smi does; 0 is DefaultTimeout.
func New(runner Runner, timeout time.Duration) *Client {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return &Client{runner: runner, timeout: timeout}
}

// ask runs nvidia-smi and returns the stdout of a successful call.
func (c *Client) ask(ctx context.Context, args []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	run, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	go func() {
		run.output, run.err = c.runner.Run(ctx, args...)
		c.end(run)
	}()
	select {
	case <-run.done:
	case <-ctx.Done():
		c.abandon(run)
		return nil, contextError(ctx)
	}
	switch {
	case run.err != nil && ctx.Err() != nil:
		return nil, contextError(ctx)
	case run.err != nil:
		return nil, run.err
	}
	return run.output.Stdout, Failure(run.output)
}

// contextError is the error of a call after its context has ended.
func contextError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrTimeout, ctx.Err())
	}
	return context.Cause(ctx)
}

// begin waits until no call is in progress, and registers the next one.
func (c *Client) begin(ctx context.Context) (*call, error) {
	for {
		next, before, abandoned := c.tryBegin()
		if next != nil {
			return next, nil
		}
		if err := before.wait(ctx, abandoned); err != nil {
			return nil, err
		}
	}
}

// tryBegin registers a call, or returns the one that is in progress.
func (c *Client) tryBegin() (next, before *call, abandoned bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		return nil, c.current, c.current.abandoned
	}
	c.current = &call{done: make(chan struct{})}
	return c.current, nil, false
}

// killTime is how long after SIGKILL a process counts as one that hangs in the kernel.
const killTime = time.Second

// wait waits until a call returns: until the context ends, or only for killTime if the
// call was abandoned.
func (r *call) wait(ctx context.Context, abandoned bool) error {
	if abandoned {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, killTime)
		defer cancel()
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

func (c *Client) abandon(run *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	run.abandoned = true
}

func (c *Client) end(run *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = nil
	close(run.done)
}
