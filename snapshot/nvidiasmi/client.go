package nvidiasmi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Runner runs nvidia-smi. An exit code other than 0 is no error of Run: its
// errors are that nothing ran or that nothing whole came back, one of the
// errors of this package or the context's.
type Runner interface {
	Run(ctx context.Context, args ...string) (Output, error)
}

// Output is what one call printed.
type Output struct {
	Stdout, Stderr []byte
	ExitCode       int
}

// DefaultTimeout is long enough for a machine with 8 GPUs without persistence
// mode, where a call takes up to 3 seconds a GPU.
const DefaultTimeout = 25 * time.Second

// Client asks nvidia-smi, one question at a time. It is safe for concurrent use.
type Client struct {
	runner  Runner
	timeout time.Duration

	mu      sync.Mutex
	current *call // nil when none is under way
}

// call is one run of nvidia-smi.
type call struct {
	done      chan struct{} // closed when it has come back
	abandoned bool          // its caller has given up on it; under Client.mu

	// Valid once done is closed.
	output Output
	err    error
}

// New makes a Client. No question takes longer than timeout, even when
// nvidia-smi does; 0 means DefaultTimeout.
func New(runner Runner, timeout time.Duration) *Client {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return &Client{runner: runner, timeout: timeout}
}

// ask runs nvidia-smi and returns what a successful call wrote on stdout.
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
		return nil, overdue(ctx)
	}
	if run.err != nil && ctx.Err() != nil {
		return nil, overdue(ctx)
	}
	if run.err != nil {
		return nil, run.err
	}
	return run.output.Stdout, Failure(run.output)
}

// overdue is the error of a question whose context ended.
func overdue(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrTimeout, ctx.Err())
	}
	return context.Cause(ctx)
}

// begin waits until no call is under way and opens the next one.
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

// tryBegin opens a call, or returns the one that is under way.
func (c *Client) tryBegin() (next, before *call, abandoned bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		return nil, c.current, c.current.abandoned
	}
	c.current = &call{done: make(chan struct{})}
	return c.current, nil, false
}

// killTime is how long a process that was sent SIGKILL gets to be gone, before
// it counts as one that hangs in the kernel.
const killTime = time.Second

// wait waits for a call to come back: as long as the context lasts while its
// caller still hopes, and only for a moment when its caller gave up.
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
