package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Request is what a controller asks for.
type Request struct {
	Name string
	Body []byte
	// Wanted ends when nobody waits for the answer any more: the controller has
	// hung up, or Serve is to end. What only informs may stop then; what acts
	// heeds Handle's own context, so that it is not left half done.
	Wanted context.Context
}

// Handler does what requests ask for.
type Handler interface {
	// Handle returns the answer to a request. An error is told to the
	// controller in its words, and the conversation goes on.
	Handle(ctx context.Context, request Request) ([]byte, error)
}

// ErrIdle says that for too long nobody asked anything, or took an answer.
var ErrIdle = errors.New("nothing was asked for too long")

// Server is the host's end.
type Server struct {
	Token    string // what the greeting begins with; whoever starts the program chose it
	Greeting Greeting
	Handler  Handler
	Idle     time.Duration // how long to wait for a request, and for an answer to be taken
}

// Serve greets and answers requests, one after the other, until in ends, ctx
// ends, or Idle is over. The end of in is the ordinary end, and no error. A
// request that is being handled is handled to its end, as far as the handler
// heeds its contexts. A read or a write that waits when Serve returns goes on
// until its file is closed or the program ends.
func (s *Server) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wanted, hungUp := context.WithCancel(ctx)
	requests := readRequests(ctx, in, hungUp)
	if err := s.send(ctx, func() error { return writeGreeting(out, s.Token, s.Greeting) }); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	for {
		f, err := s.next(ctx, requests)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answer := s.handle(ctx, wanted, f)
		if err := s.send(ctx, func() error { return writeFrame(out, answer) }); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
}

// next waits for a request; io.EOF is the end of them.
func (s *Server) next(ctx context.Context, requests <-chan received) (*frame, error) {
	clock := time.NewTimer(s.Idle)
	defer clock.Stop()
	select {
	case r := <-requests:
		return r.frame, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-clock.C:
		return nil, ErrIdle
	}
}

// send waits until something is written: a controller that is frozen, or cut
// off without a word, takes nothing.
func (s *Server) send(ctx context.Context, write func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Idle, ErrIdle)
	defer cancel()
	_, err := within(ctx, func() (struct{}, error) { return struct{}{}, write() })
	return err
}

func (s *Server) handle(ctx, wanted context.Context, request *frame) *frame {
	body, err := s.Handler.Handle(ctx, Request{Name: request.name, Body: request.body, Wanted: wanted})
	if err == nil && len(body) > MaxBody {
		err = fmt.Errorf("an answer of %d bytes is too long", len(body))
	}
	if err != nil {
		text := err.Error()
		return &frame{kind: kindRefusal, id: request.id, body: []byte(text[:min(len(text), maxRefusal)])}
	}
	return &frame{kind: kindAnswer, id: request.id, body: body}
}

// maxRefusal is how long the words of a refusal may be, in bytes.
const maxRefusal = 64 << 10

// received is a request, or why there are no more.
type received struct {
	frame *frame
	err   error
}

// readRequests reads in a goroutine of its own, since a read of a pipe cannot
// be made to heed ctx, and since the end of the requests is to be noticed while
// one is being handled.
func readRequests(ctx context.Context, in io.Reader, hungUp func()) <-chan received {
	requests := make(chan received)
	go func() {
		defer hungUp()
		for last := uint64(0); ; {
			r := receive(in, last)
			if r.err != nil {
				hungUp()
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
			if r.err != nil {
				return
			}
			last = r.frame.id
		}
	}()
	return requests
}

// receive reads the request after the one with the id last.
func receive(in io.Reader, last uint64) received {
	f, err := readFrame(in)
	switch {
	case errors.Is(err, io.EOF):
		return received{err: io.EOF}
	case err != nil:
		return received{err: fmt.Errorf("read a request: %w", err)}
	case f.kind != kindRequest || f.id <= last:
		return received{err: fmt.Errorf("%w: request %d of the kind %q after request %d", ErrProtocol, f.id, f.kind, last)}
	}
	return received{frame: f}
}
