package stream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
)

// ErrRefused is wrapped when the host understood a request and could not do it.
// The conversation goes on.
var ErrRefused = errors.New("the host says")

// Client is the controller's end. It has one question under way at a time, and
// is used by one goroutine at a time. An error that is not ErrRefused ends it:
// later calls fail alike, and the caller closes the session.
type Client struct {
	Greeting Greeting

	in     *bufio.Reader
	out    io.Writer
	closer io.Closer
	next   uint64
	broken error
}

// Open reads the greeting and returns the client. The closer is called when a
// context ends while the host is waited for: closing the session is what frees
// a read. The error wraps ErrNoGreeting, ErrVersion or ErrProtocol.
func Open(ctx context.Context, in io.Reader, out io.Writer, closer io.Closer, token string) (*Client, error) {
	c := &Client{in: bufio.NewReaderSize(in, 4096), out: out, closer: closer}
	err := c.guarded(ctx, func() (err error) {
		c.Greeting, err = readGreeting(c.in, token)
		return err
	})
	return c, err
}

// Call asks for name with a body, and waits for the answer. When ctx ends first
// the conversation is over: a late answer can never be taken for another's.
func (c *Client) Call(ctx context.Context, name string, body []byte) (answer []byte, err error) {
	if c.broken != nil {
		return nil, c.broken
	}
	c.next++
	err = c.guarded(ctx, func() error {
		if err := writeFrame(c.out, &frame{kind: kindRequest, name: name, id: c.next, body: body}); err != nil {
			return fmt.Errorf("send the request: %w", err)
		}
		answer, err = c.answer()
		return err
	})
	return answer, err
}

func (c *Client) answer() ([]byte, error) {
	f, err := readFrame(c.in)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer: %w", err)
	case f.id != c.next:
		return nil, fmt.Errorf("%w: an answer to %d, and %d was asked", ErrProtocol, f.id, c.next)
	case f.kind == kindRefusal:
		return nil, fmt.Errorf("%w: %s", ErrRefused, f.body)
	case f.kind != kindAnswer:
		return nil, fmt.Errorf("%w: a frame of the kind %q for an answer", ErrProtocol, f.kind)
	}
	return f.body, nil
}

// guarded does work that waits for the host, and closes the session when ctx
// ends first.
func (c *Client) guarded(ctx context.Context, work func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // nothing was sent: the conversation may go on
	}
	stop := context.AfterFunc(ctx, func() { _ = c.closer.Close() })
	err := work()
	if !stop() && err != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil && !errors.Is(err, ErrRefused) {
		c.broken = err
	}
	return err
}

// Broken says why the conversation is over; nil while it goes on.
func (c *Client) Broken() error { return c.broken }
