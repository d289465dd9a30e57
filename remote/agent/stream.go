package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
)

var (
	// ErrRefused is wrapped when the host understood a request and could not do
	// it. The conversation goes on.
	ErrRefused = errors.New("the host says")
	// ErrNotSent is wrapped, beside the reason, when nothing of a request was
	// sent: whatever it asks for is not done.
	ErrNotSent = errors.New("not sent")
	// ErrEnded is wrapped when the other end is gone: between two messages, or
	// before it took the whole of one.
	ErrEnded = errors.New("the conversation ended")
)

// Stream is the controller's end. It has one question under way at a time, and
// is used by one goroutine at a time. An error that is not ErrRefused ends the
// conversation: later calls fail alike, and the caller closes the session.
type Stream struct {
	Greeting Greeting

	in     *bufio.Reader
	out    io.Writer
	next   uint64
	broken error
}

// OpenStream reads the greeting and returns the client. The error wraps
// ErrNoGreeting, ErrVersion, ErrProtocol, or is the cause of ctx's end. After
// an error the caller closes the session: that frees a read which still waits.
func OpenStream(ctx context.Context, in io.Reader, out io.Writer, token string) (*Stream, error) {
	c := &Stream{in: bufio.NewReaderSize(in, 4096), out: out}
	greeting, err := within(ctx, func() (Greeting, error) { return readGreeting(c.in, token) })
	if err != nil {
		return nil, err
	}
	c.Greeting = greeting
	return c, nil
}

// Call asks for name with a body, and waits for the answer. When ctx ends first
// the conversation is over: a late answer can never be taken for another's.
func (c *Stream) Call(ctx context.Context, name string, body []byte) ([]byte, error) {
	switch {
	case c.broken != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotSent, c.broken)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotSent, context.Cause(ctx)) // the conversation may go on
	case c.in.Buffered() > 0:
		c.broken = fmt.Errorf("%w: it spoke without being asked", ErrProtocol)
		return nil, fmt.Errorf("%w: %w", ErrNotSent, c.broken)
	}
	c.next++
	request := &frame{kind: kindRequest, name: name, id: c.next, body: body}
	answer, err := within(ctx, func() ([]byte, error) { return c.exchange(request) })
	if err != nil && !errors.Is(err, ErrRefused) {
		c.broken = err
	}
	return answer, err
}

func (c *Stream) exchange(request *frame) ([]byte, error) {
	if err := writeFrame(c.out, request); err != nil {
		return nil, fmt.Errorf("%w: send the request: %w", ErrEnded, err)
	}
	f, err := readFrame(c.in)
	switch {
	case errors.Is(err, ErrProtocol):
		return nil, fmt.Errorf("read the answer: %w", err)
	case err != nil:
		return nil, fmt.Errorf("%w: read the answer: %w", ErrEnded, err)
	case f.id != request.id:
		return nil, fmt.Errorf("%w: an answer to %d, and %d was asked", ErrProtocol, f.id, request.id)
	case f.kind == kindRefusal:
		return nil, fmt.Errorf("%w: %s", ErrRefused, f.body[:min(len(f.body), maxRefusalKept)])
	case f.kind != kindAnswer:
		return nil, fmt.Errorf("%w: a frame of the kind %q for an answer", ErrProtocol, f.kind)
	}
	return f.body, nil
}

// maxRefusalKept is how much is kept of the words in which a host refuses, in
// bytes: they are shown to the administrator.
const maxRefusalKept = 4096

// within waits for work that waits for the host, or for the end of ctx: then
// the work goes on until the session is closed, and nobody sees what it brings.
func within[T any](ctx context.Context, work func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := work()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
